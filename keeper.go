package outbox

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
)

// A keeper does a Subscriber's periodic duties: it renews leases, reaps those of dead workers, purges what is old, and
// looks for topics that nobody handles.
type keeper struct {
	outbox     *Outbox
	holdings   *holdings
	config     SubscriberConfig
	subscribed func(topic string) bool
	logger     watermill.LoggerAdapter
}

var errUnhandled = errors.New("no handler for the topic")

// purgeEvery follows a short retention, and finds what a longer one has ended soon enough.
func purgeEvery(retention time.Duration) time.Duration {
	return max(time.Second, min(retention, time.Minute))
}

// renewEvery is early enough for two more tries before the lease ends.
func renewEvery(lease time.Duration) time.Duration { return max(lease/4, time.Millisecond) }

// run returns when ctx has ended and all duties with it.
func (k *keeper) run(ctx context.Context) {
	var duties sync.WaitGroup
	renewal := renewEvery(k.config.LeaseDuration)
	duties.Go(func() { k.every(ctx, renewal, renewal, k.renew) })
	duties.Go(func() { k.inTurn(ctx, k.config.LeaseDuration, k.reap) })
	duties.Go(func() { k.inTurn(ctx, k.config.UnhandledAfter, k.findUnhandled) })
	if k.config.Retention > 0 {
		duties.Go(func() { k.inTurn(ctx, purgeEvery(k.config.Retention), k.purge) })
	}
	duties.Wait()
}

// inTurn does a duty that can wait: where there are Turns it begins at any moment, so that many Subscribers do not all ask
// at once, and leaves a store alone that is down.
func (k *keeper) inTurn(ctx context.Context, interval time.Duration, duty func(context.Context) error) {
	turns := k.config.Turns
	if turns == nil || interval <= 0 {
		k.every(ctx, interval, interval, duty)
		return
	}
	k.every(ctx, 1+rand.N(interval), interval, func(ctx context.Context) error {
		if turns.Down() {
			return nil
		}
		return duty(ctx)
	})
}

// every calls duty until ctx ends. An error is logged; the duty is tried again the next time.
func (k *keeper) every(ctx context.Context, first, interval time.Duration, duty func(context.Context) error) {
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
			if err := duty(ctx); err != nil && ctx.Err() == nil {
				k.logger.Error("A periodic duty of the outbox failed, trying again", err, nil)
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

func (k *keeper) purge(ctx context.Context) error {
	_, err := k.outbox.Purge(ctx, PurgeParams{OlderThan: k.config.Retention})
	return err
}

// findUnhandled warns of topics whose messages wait although this Subscriber runs. Another may be meant to handle them,
// and so they stay where they are.
func (k *keeper) findUnhandled(ctx context.Context) error {
	topics, err := k.outbox.Topics(ctx)
	if err != nil {
		return err
	}
	for i := range topics {
		t := &topics[i]
		if t.Handled = k.subscribed(t.Topic); t.Handled || t.Age < k.config.UnhandledAfter {
			continue
		}
		k.logger.Error("Messages wait on a topic without a handler here; subscribe to it, or check the process that should",
			errUnhandled, watermill.LogFields{"topic": t.Topic, "waiting": t.Waiting, "age": t.Age.String()})
	}
	k.config.Hooks.backlog(topics)
	return nil
}
