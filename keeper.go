package outbox

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
)

// A keeper does a Subscriber's periodic duties: it renews leases, reaps those of dead workers, looks for topics that
// nobody handles, and has the janitor with it.
type keeper struct {
	outbox   *Outbox
	holdings *holdings
	backlog  *backlog
	janitor  *Janitor
	config   SubscriberConfig
	logger   watermill.LoggerAdapter
}

// renewEvery is early enough for two more tries before the lease ends.
func renewEvery(lease time.Duration) time.Duration { return max(lease/4, time.Millisecond) }

// run returns when ctx has ended and all duties with it.
func (k *keeper) run(ctx context.Context) {
	var duties sync.WaitGroup
	renewal := renewEvery(k.config.LeaseDuration)
	duties.Go(func() { k.every(ctx, renewal, renewal, duty{"Cannot renew leases, trying again", k.renew}) })
	duties.Go(func() {
		k.inTurn(ctx, k.config.LeaseDuration, duty{"Cannot give back expired leases, trying again", k.reap})
	})
	duties.Go(func() {
		k.inTurn(ctx, k.config.UnhandledAfter, duty{"Cannot look for topics without a handler, trying again", k.backlog.look})
	})
	duties.Go(func() { k.janitor.run(ctx, k.away) })
	duties.Wait()
}

// A duty comes round again and again; trouble is what is said when it fails.
type duty struct {
	trouble string
	do      func(context.Context) error
}

// inTurn does a duty that can wait: where there are Turns it begins at any moment, so that many Subscribers do not all ask
// at once, and leaves a store alone that is down.
func (k *keeper) inTurn(ctx context.Context, interval time.Duration, d duty) {
	if k.config.Turns == nil || interval <= 0 {
		k.every(ctx, interval, interval, d)
		return
	}
	k.every(ctx, 1+rand.N(interval), interval, duty{d.trouble, func(ctx context.Context) error {
		if k.away() {
			return nil
		}
		return d.do(ctx)
	}})
}

// every does a duty until ctx ends. An error is logged; the duty is tried again the next time.
func (k *keeper) every(ctx context.Context, first, interval time.Duration, d duty) {
	if interval <= 0 {
		return
	}
	ticker := time.NewTicker(first)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if first != interval {
				first = interval
				ticker.Reset(interval)
			}
			if err := d.do(ctx); err == nil {
				k.outbox.troubles.Over(d.trouble)
			} else if ctx.Err() == nil {
				k.outbox.troubles.Error(d.trouble, err, nil)
			}
		}
	}
}

// renew extends the leases that have run for a quarter of their time. What the database refuses is lost: another worker
// has or will have the message, and the handler's context ends.
func (k *keeper) renew(ctx context.Context) error {
	due := slices.DeleteFunc(k.holdings.due(renewEvery(k.config.LeaseDuration)), func(d *Delivery) bool {
		return d.settledInTx.Load() // its row is locked until the handler commits
	})
	if len(due) == 0 {
		return nil
	}
	receipts := make([]Receipt, len(due))
	byReceipt := make(map[Receipt]*Delivery, len(due))
	for i, d := range due {
		receipts[i] = d.claimed.Receipt
		byReceipt[d.claimed.Receipt] = d
	}
	refused, err := k.outbox.renew(ctx, k.config.LeaseDuration, receipts)
	if err != nil {
		return err
	}
	k.holdings.touch(due)
	var lost []*Delivery
	for _, receipt := range refused {
		d := byReceipt[receipt]
		lost = append(lost, d)
		if d.lose() {
			k.logger.Info("Lost the lease of a message that is being handled; its late answer will change nothing", d.logFields())
		}
	}
	k.holdings.remove(lost)
	return nil
}

// reap gives back what dead workers held.
func (k *keeper) reap(ctx context.Context) error {
	_, err := k.outbox.ReapExpired(ctx)
	return err
}

// away says whether the store is known to be down.
func (k *keeper) away() bool { return k.config.Turns != nil && k.config.Turns.Down() }
