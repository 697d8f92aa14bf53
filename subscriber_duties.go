package outbox

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/incursa/watermill-outbox/internal/limits"
	"github.com/incursa/watermill-outbox/internal/seam"
)

// A keeper does a Subscriber's periodic duties: it renews its leases, gives back what lost claims and dead workers hold, writes
// heartbeats, looks for topics without a handler, and runs the janitor.
type keeper struct {
	outbox   *Outbox
	leases   *leases
	lost     *lostClaims
	backlog  *backlog
	janitor  *janitor
	remover  *remover
	presence *presence
	config   SubscriberConfig
	limiter  seam.Limiter // may be nil
}

// run returns when ctx has ended and all duties with it.
func (k *keeper) run(ctx context.Context) {
	var duties sync.WaitGroup
	duties.Go(func() { k.leases.renewAll(ctx) })
	duties.Go(func() { k.leases.endAll(ctx) })
	duties.Go(func() { k.lost.run(ctx) })
	duties.Go(func() {
		k.unhurried(ctx, k.config.LeaseDuration, duty{"Cannot give back expired leases, trying again", k.reap})
	})
	duties.Go(func() {
		k.unhurried(ctx, k.config.UnhandledAfter, duty{"Cannot look for topics without a handler, trying again", k.look})
	})
	duties.Go(func() {
		k.atOnce(ctx, limits.Heartbeat(k.config.LeaseDuration), duty{"Cannot write the heartbeat, trying again", k.presence.beat})
	})
	duties.Go(func() { k.janitor.run(ctx, k.away) })
	duties.Go(func() { k.remover.run(ctx) })
	duties.Wait()
}

// A duty is repeated; trouble is logged when it fails.
type duty struct {
	trouble string
	do      func(context.Context) error
}

// atOnce is unhurried, but begins at once if there is no Limiter.
func (k *keeper) atOnce(ctx context.Context, interval time.Duration, d duty) {
	if k.limiter == nil {
		k.every(ctx, 1, interval, d)
		return
	}
	k.unhurried(ctx, interval, d)
}

// unhurried does a duty that can wait. With a Limiter, it begins at a random time, so that many Subscribers do not all call the
// database at once, and skips a store that is down.
func (k *keeper) unhurried(ctx context.Context, interval time.Duration, d duty) {
	if k.limiter == nil || interval <= 0 {
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

// every does a duty until ctx ends. An error is logged, and the duty is tried again the next time.
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

// reap gives back messages of dead workers; after a gap in renewing, only once this worker's own leases are renewed.
func (k *keeper) reap(ctx context.Context) error {
	if !k.leases.mayGiveBack() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, limits.Reaping(k.config.LeaseDuration))
	defer cancel()
	_, err := k.outbox.ReapExpired(ctx)
	return err
}

// look checks the topics, with a time limit.
func (k *keeper) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, limits.Upkeep(k.config.LeaseDuration))
	defer cancel()
	return k.backlog.look(ctx)
}

// away reports whether the store is known to be down.
func (k *keeper) away() bool { return k.limiter != nil && k.limiter.Down() }
