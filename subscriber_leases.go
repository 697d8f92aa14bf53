package outbox

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/incursa/watermill-outbox/internal/flow"
	"github.com/incursa/watermill-outbox/internal/limits"
)

// leases keeps the leases of the messages that a Subscriber holds: it renews each after a quarter of its duration. If a lease
// cannot be renewed, it ends the handler's context before another worker may have the message.
//
// After that the message stays held, and its lease is renewed if that is possible again, until the handler returns: only then
// is it given back, so that no other handler has it while the first is running.
type leases struct {
	outbox   *Outbox
	holdings *flow.Leases[*Delivery]
	spare    *spare
	window   *flow.Window[*Delivery]
	lease    time.Duration
	logger   watermill.LoggerAdapter

	starved bool // the shortage of connections has been logged

	looked time.Time // when early last looked; only the loop that claims calls it
}

// begin is called before messages are handed out: it keeps a connection for renewals before handlers take all of them. If
// there is none, the first renewal tries again, and logs the error.
func (l *leases) begin(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, limits.Renewing(l.lease)/8)
	defer cancel()
	_ = l.spare.hold(ctx)
}

const cannotRenew = "Cannot renew leases, trying again"

// renewAll renews until ctx ends.
func (l *leases) renewAll(ctx context.Context) {
	every := limits.RenewEvery(l.lease)
	wait := every / 2
	for flow.Pause(ctx, wait) == nil {
		err := l.renew(ctx)
		l.adapt(err)
		if err != nil && ctx.Err() == nil {
			l.outbox.troubles.Error(cannotRenew, err, nil)
			wait = every / 4
			continue
		}
		l.outbox.troubles.Over(cannotRenew)
		// When the oldest has run for a quarter of its duration; a slow claim may return leases that are already old.
		wait = min(max(every-l.holdings.Oldest(), every/8), every/2)
	}
}

// renew extends the leases that have run for a while. A lease that the database refuses is lost: another worker has or will
// have the message, and the handler's context ends.
func (l *leases) renew(ctx context.Context) error {
	every := limits.RenewEvery(l.lease)
	if l.holdings.None() {
		l.spare.release() //nolint:contextcheck // it waits for nothing
		return nil
	}
	if l.holdings.Oldest() < every && l.holdings.InTouch(every) {
		return nil
	}
	due := l.holdings.Older(every / 2)
	for len(due) > 0 {
		n := min(len(due), maxBatch)
		if err := l.renewBatch(ctx, due[:n]); err != nil {
			return err
		}
		due = due[n:]
	}
	return nil
}

// early returns what a call that is made anyway should renew: a little early, so that renewals need no call of their own while
// there are others.
func (l *leases) early() []*Delivery {
	every := limits.RenewEvery(l.lease)
	if time.Since(l.looked) < every/8 {
		return nil
	}
	l.looked = time.Now()
	if l.holdings.Oldest() < every*3/4 {
		return nil
	}
	due := l.holdings.Older(every / 2)
	if len(due) > maxBatch {
		return nil
	}
	return due
}

func receiptsOf(deliveries []*Delivery) []Receipt {
	receipts := make([]Receipt, len(deliveries))
	for i, d := range deliveries {
		receipts[i] = d.claimed.Receipt
	}
	return receipts
}

func (l *leases) renewBatch(ctx context.Context, due []*Delivery) error {
	limit := limits.Renewing(l.lease)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var sent time.Time
	var answer []unrenewed
	err := l.spare.run(ctx, limit/4, func(x Executor) (err error) {
		sent = time.Now()
		answer, err = l.outbox.renew(ctx, x, l.lease, receiptsOf(due))
		return err
	})
	if err != nil {
		return err
	}
	l.answered(due, answer, sent)
	return nil
}

// answered records the answer to a renewal, which was sent at the given time.
func (l *leases) answered(due []*Delivery, answer []unrenewed, sent time.Time) {
	byReceipt := make(map[Receipt]*Delivery, len(due))
	for _, d := range due {
		byReceipt[d.claimed.Receipt] = d
	}
	locked := map[*Delivery]bool{}
	for _, u := range answer {
		d := byReceipt[u.receipt]
		switch {
		case !l.holdings.Has(d):
			// Settled meanwhile, perhaps by the same call.
		case u.held:
			locked[d] = true
		case d.settledInTx.Load() != nil && !d.lapsed.Load():
			// Settled, not lost: the handler's transaction is committed, but the handler has not returned yet.
		default:
			l.holdings.Remove(d)
			if d.lose() {
				l.logger.Info("Lost the lease of a message that is being handled; a late ack or nack will change nothing", d.logFields())
			}
		}
	}
	l.holdings.Renewed(due, locked, sent)
}

// mayGiveBack reports whether none of the worker's own leases can be over by the end of a give-back that begins now.
func (l *leases) mayGiveBack() bool { return l.holdings.InTouch(l.lease / 2) }

// adapt claims fewer messages at a time while handlers leave no connection for renewals, and more again once there is one, or
// nothing has been held for long enough to need it.
func (l *leases) adapt(err error) {
	switch {
	case err == nil:
		l.window.Widen()
	case errors.Is(err, errNoConnection):
		l.window.Narrow()
		if !l.starved {
			l.starved = true
			l.logger.Error("Handlers hold all connections of the pool, so leases cannot be renewed and fewer messages are claimed at a time; raise SetMaxOpenConns or lower MaxInFlight",
				err, watermill.LogFields{"max_open_connections": l.spare.db.Stats().MaxOpenConnections})
		}
	}
}

// endAll ends contexts as leases expire, until ctx ends. It needs no database.
func (l *leases) endAll(ctx context.Context) {
	trusted := limits.Trusted(l.lease)
	for flow.Pause(ctx, min(max(trusted-l.holdings.Oldest(), time.Millisecond), limits.RenewEvery(l.lease))) == nil {
		for _, d := range l.holdings.End(trusted) {
			if d.lapse() {
				l.logger.Info("The lease of a message that is being handled could not be renewed in time; its handler's context has ended, and it is delivered again",
					d.logFields())
			}
		}
	}
}
