package fanout

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/join"
)

// A worker works on one policy, while no other dispatcher does.
type worker struct {
	config  *Config
	policy  *Policy
	outbox  *outbox.Outbox
	cursor  *outbox.Cursor
	joins   *join.Coordinator // nil without Policy.Join
	logger  watermill.LoggerAdapter
	woken   chan struct{} // has room for one
	closing <-chan struct{}

	position int64     // of the cursor
	known    bool      // whether that is so: after an error the database is asked
	leased   time.Time // zero while the lease is not held
	sent     []int64   // for each destination elsewhere, up to where it has taken messages from this worker
}

// databaseTimeout is how long a turn waits for the database of the log.
const databaseTimeout = 30 * time.Second

// longestWait is how long a clock that is set goes unnoticed.
const longestWait = time.Minute

// run works until closing is closed. What it is at then may finish until ctx ends.
func (w *worker) run(ctx context.Context) {
	stop := outbox.OnWakeStore(w.config.Store, w.wake)
	defer stop()
	idle := pauses{w.config.PollInterval, w.config.MaxPollInterval, 0}
	failing := pauses{w.config.RetryMin, w.config.RetryMax, 0}
	var failed time.Time // since when nothing has gone well
	for !isClosed(w.closing) {
		found, wait, err := w.turn(ctx)
		if err != nil && !isRefused(err) {
			if isClosed(w.closing) {
				break // it may have been cut short
			}
			if failed.IsZero() {
				failed = time.Now()
				w.logger.Error("A policy waits: it cannot dispatch its next messages", err, nil)
			} else {
				w.logger.Debug("A policy still waits", watermill.LogFields{"err": err, "for": time.Since(failed).String()})
			}
			w.rest(ctx, failing.next(), nil)
			continue
		}
		if err == nil && !failed.IsZero() {
			w.logger.Info("A policy goes on", watermill.LogFields{"waited": time.Since(failed).String()})
			failed = time.Time{}
			failing.reset()
		}
		switch {
		case errors.Is(err, outbox.ErrLeaseLost):
			w.logger.Info("Another dispatcher has taken a policy over", nil)
		case err != nil: // another has it: this one stands by
			w.rest(ctx, w.config.MaxPollInterval, nil)
		case found:
			idle.reset()
		case wait > 0:
			w.rest(ctx, min(wait, longestWait), nil)
		case w.rest(ctx, idle.next(), w.woken):
			idle.reset()
		}
	}
	w.release(ctx)
}

func isRefused(err error) bool {
	return errors.Is(err, outbox.ErrLeaseHeld) || errors.Is(err, outbox.ErrLeaseLost)
}

// turn dispatches one batch. It answers whether there was any, and else how long the next slice is not due.
func (w *worker) turn(ctx context.Context) (found bool, wait time.Duration, err error) {
	messages, err := w.read(ctx)
	if err == nil {
		if messages, wait = w.policy.cut(messages); len(messages) == 0 {
			return false, wait, nil
		}
		err = w.dispatch(ctx, messages)
	}
	w.known = err == nil
	if isRefused(err) {
		w.leased = time.Time{}
	}
	return err == nil, 0, err
}

// read reads what comes next, if this worker has the lease.
func (w *worker) read(ctx context.Context) ([]outbox.LogMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, databaseTimeout)
	defer cancel()
	if !w.known {
		at := time.Now()
		position, err := w.cursor.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		w.position, w.known, w.leased = position, true, at
	} else if time.Since(w.leased) >= w.renewEvery() {
		at := time.Now()
		if err := w.cursor.Renew(ctx); err != nil {
			return nil, err
		}
		w.leased = at
	}
	return w.cursor.Read(ctx, w.position, w.config.BatchSize)
}

// dispatch sends a batch on, and then passes it.
func (w *worker) dispatch(ctx context.Context, messages []outbox.LogMessage) error {
	started := time.Now()
	event := DispatchEvent{
		Policy: w.policy.Name, Read: len(messages), Position: messages[len(messages)-1].Position, Lag: messages[0].Age}
	var matching []outbox.LogMessage
	for i := range messages {
		if msg := &messages[i]; w.policy.matches(msg) {
			if msg.Malformed != nil {
				w.logger.Error("A message of the log cannot be read; it goes out without its headers", msg.Malformed, watermill.LogFields{
					"message_id": msg.ID.String(), "position": msg.Position})
			}
			matching = append(matching, *msg)
		}
	}
	event.Matched = len(matching)
	var err error
	if len(matching) > 0 {
		err = w.sendElsewhere(ctx, matching)
	}
	if err == nil {
		err = w.pass(ctx, event.Position, matching)
	}
	event.Took, event.Err = time.Since(started), err
	w.config.OnDispatch(event)
	if err == nil && len(matching) > 0 {
		w.logger.Debug("Dispatched messages", watermill.LogFields{"count": event.Matched, "position": event.Position})
	}
	return err
}

// pass moves the cursor, and inserts the copies for topics of the same outbox in the same transaction. The cursor goes
// first: if the lease is lost, nothing else is done, and until the commit nobody can take it.
func (w *worker) pass(ctx context.Context, position int64, matching []outbox.LogMessage) error {
	ctx, cancel := context.WithTimeout(ctx, databaseTimeout)
	defer cancel()
	at := time.Now()
	err := w.outbox.InTx(ctx, w.outbox.DB(), func(ctx context.Context, tx outbox.Executor) error {
		if err := w.cursor.Advance(ctx, tx, position); err != nil {
			return err
		}
		return w.insert(ctx, tx, matching)
	})
	if err == nil {
		w.position, w.leased = position, at
	}
	return err
}

// rest waits, keeping the lease. It answers whether it was woken.
func (w *worker) rest(ctx context.Context, d time.Duration, woken <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	renew := time.NewTicker(w.renewEvery())
	defer renew.Stop()
	for {
		select {
		case <-timer.C:
			return false
		case <-woken:
			return true
		case <-w.closing:
			return false
		case <-renew.C:
			if w.leased.IsZero() {
				continue
			}
			if err := w.renew(ctx); errors.Is(err, outbox.ErrLeaseLost) {
				return false // the next turn finds out the same
			}
		}
	}
}

// renew extends the lease. An error is logged, and leaves what is left of it.
func (w *worker) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, w.config.LeaseDuration)
	defer cancel()
	err := w.cursor.Renew(ctx)
	if err != nil && !errors.Is(err, outbox.ErrLeaseLost) && ctx.Err() == nil {
		w.logger.Error("Cannot extend the lease of a policy, trying again", err, nil)
	}
	return err
}

// renewEvery leaves room for two that fail.
func (w *worker) renewEvery() time.Duration { return max(w.config.LeaseDuration/3, time.Millisecond) }

func (w *worker) release(ctx context.Context) {
	if w.leased.IsZero() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeGrace/2)
	defer cancel()
	if err := w.cursor.Release(ctx); err != nil {
		w.logger.Error("Cannot give the lease of a policy back; it runs out", err, nil)
	}
}

// wake ends the pause of a policy that the topics may concern; none means all.
func (w *worker) wake(topics []string) {
	for _, topic := range topics {
		if w.policy.concerns(topic) {
			topics = nil
			break
		}
	}
	if len(topics) > 0 {
		return
	}
	select {
	case w.woken <- struct{}{}:
	default:
	}
}

// pauses double from shortest to longest.
type pauses struct{ shortest, longest, last time.Duration }

func (p *pauses) next() time.Duration {
	p.last = min(max(2*p.last, p.shortest), p.longest)
	return p.last
}

func (p *pauses) reset() { p.last = 0 }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
