package fanout

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/flow"
	"github.com/incursa/watermill-outbox/internal/limits"
	"github.com/incursa/watermill-outbox/internal/seam"
	"github.com/incursa/watermill-outbox/join"
)

// A worker runs one policy, while no other dispatcher does.
type worker struct {
	config  *Config
	policy  *Policy
	outbox  *outbox.Outbox
	inside  seam.Operations // of the outbox
	cursor  seam.Cursor[outbox.LogMessage]
	joins   *join.Coordinator // nil without Policy.Join
	logger  watermill.LoggerAdapter
	woken   chan struct{} // has room for one note
	closing <-chan struct{}

	position int64     // of the cursor
	known    bool      // whether position is certain; after an error the database is asked
	leased   time.Time // zero while the lease is not held
	sent     []taken   // for each destination elsewhere

	wentBack *outbox.LogWentBackError // to be completed and logged when the cursor is read
	standing int64                    // the shape of another policy that holds the lease and has been logged
}

// passTimeout limits the transaction that dispatches a batch, including Policy.Join.
const passTimeout = 30 * time.Second

// longestWait limits how long a change of the database's clock goes unnoticed.
const longestWait = time.Minute

// run works until closing is closed. The current batch may finish until ctx ends.
func (w *worker) run(ctx context.Context) {
	stop := outbox.OnWake(w.config.Store, w.wake)
	defer stop()
	idle := flow.Pauses{Shortest: w.config.PollInterval, Longest: w.config.MaxPollInterval}
	failing := flow.Pauses{Shortest: w.config.RetryMin, Longest: w.config.RetryMax}
	var failed time.Time // when trouble began
	for !flow.IsClosed(w.closing) {
		found, wait, err := w.round(ctx)
		if errors.As(err, &w.wentBack) {
			continue // from where the cursor is
		}
		if err != nil && !isRefused(err) {
			if flow.IsClosed(w.closing) {
				break // it may have been cut short
			}
			if failed.IsZero() {
				failed = time.Now()
				w.logger.Error("A policy waits: it cannot dispatch its next messages", err, nil)
			} else {
				w.logger.Debug("A policy still waits", watermill.LogFields{"err": err, "for": time.Since(failed).String()})
			}
			w.rest(ctx, failing.Next(), nil)
			continue
		}
		if err == nil && !failed.IsZero() {
			w.logger.Info("A policy continues", watermill.LogFields{"waited": time.Since(failed).String()})
			failed = time.Time{}
			failing.Reset()
		}
		switch {
		case errors.Is(err, outbox.ErrLeaseLost):
			w.logger.Info("Another dispatcher has taken over a policy; this one stands by", w.versionField())
		case err != nil: // another dispatcher has the policy: this one stands by
			w.tellOfAnother(err)
			w.rest(ctx, w.config.MaxPollInterval, nil)
		case found:
			idle.Reset()
		case wait > 0:
			w.rest(ctx, min(wait, longestWait), nil)
		case w.rest(ctx, idle.Next(), w.woken):
			idle.Reset()
		}
	}
	w.release(ctx)
}

func isRefused(err error) bool {
	return errors.Is(err, base.ErrLeaseHeld) || errors.Is(err, outbox.ErrLeaseLost)
}

// round dispatches one batch. It reports whether there was one, and otherwise how long it takes until the next slice is due.
func (w *worker) round(ctx context.Context) (found bool, wait time.Duration, err error) {
	messages, err := w.read(ctx)
	if err == nil {
		if messages, wait = w.policy.cut(messages); len(messages) == 0 {
			return false, wait, nil
		}
		if err = w.hold(ctx); err == nil { // reading may have taken a while
			err = w.dispatch(ctx, messages)
		}
	}
	w.known = err == nil
	if isRefused(err) {
		w.leased = time.Time{}
	}
	return err == nil, 0, err
}

// read reads what comes next, if this worker has the lease.
func (w *worker) read(ctx context.Context) ([]outbox.LogMessage, error) {
	if err := w.hold(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, limits.Reading(w.config.LeaseDuration))
	defer cancel()
	return w.cursor.Read(ctx, w.position, w.config.BatchSize)
}

// hold takes the lease and reads the cursor if its position is not known; otherwise it keeps the lease.
func (w *worker) hold(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, limits.Renewing(w.config.LeaseDuration))
	defer cancel()
	at := time.Now()
	if w.known {
		if time.Since(w.leased) < w.renewEvery() {
			return nil
		}
		err := w.cursor.Renew(ctx)
		if err == nil {
			w.leased = at
		}
		return err
	}
	position, err := w.cursor.Acquire(ctx)
	if err != nil {
		return err
	}
	if position < w.position && w.wentBack == nil {
		w.wentBack = &outbox.LogWentBackError{Store: w.config.Store, Group: w.policy.group(), Topic: seam.AllTopics, Reader: w.position}
	}
	if w.wentBack != nil {
		w.wentBack.Position = position
		w.logger.Error("The log has come back older than a policy's dispatcher, which goes on from the cursor", w.wentBack, nil)
		w.config.OnDispatch(DispatchEvent{Policy: w.policy.Name, Position: position, Err: w.wentBack})
		w.wentBack = nil
	}
	if w.leased.IsZero() {
		w.logger.Info("Took over a policy", w.versionField())
	}
	w.position, w.known, w.leased, w.standing = position, true, at, 0
	return nil
}

func (w *worker) versionField() watermill.LogFields {
	return watermill.LogFields{"version": w.policy.Version}
}

// tellOfAnother warns once about a dispatcher that holds the lease with a different policy of the same name.
func (w *worker) tellOfAnother(err error) {
	var held *base.LeaseHeldError
	if !errors.As(err, &held) || held.Shape == w.policy.shape() || held.Shape == w.standing {
		return
	}
	w.standing = held.Shape
	fields := w.versionField().Add(watermill.LogFields{"version_running": held.Version})
	if held.Version > w.policy.Version {
		w.logger.Info("A newer version of a policy is at work; this one stands by", fields)
		return
	}
	w.logger.Error("A policy has changed, and a dispatcher with the other one is running: give the newer one a higher Version, so that it takes over",
		errChanged, fields)
}

var errChanged = errors.New("two dispatchers have different policies under one name and version")

// dispatch sends a batch, and then moves the cursor past it.
func (w *worker) dispatch(ctx context.Context, messages []outbox.LogMessage) error {
	started := time.Now()
	event := DispatchEvent{
		Policy: w.policy.Name, Read: len(messages), Position: messages[len(messages)-1].Position, Lag: messages[0].Age}
	var matching []outbox.LogMessage
	for i := range messages {
		if msg := &messages[i]; w.policy.matches(msg) {
			if msg.Malformed != nil {
				w.logger.Error("A message of the log cannot be read; it is sent without its headers", msg.Malformed, watermill.LogFields{
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
	ctx, cancel := context.WithTimeout(ctx, passTimeout)
	defer cancel()
	at := time.Now()
	err := w.inside.InTx(ctx, w.outbox.DB(), func(ctx context.Context, tx outbox.Executor) error {
		if err := w.cursor.Advance(ctx, tx, w.position, position); err != nil {
			return err
		}
		return w.insert(ctx, tx, matching)
	})
	if err == nil {
		w.position, w.leased = position, at
	}
	return err
}

// rest waits while keeping the lease. It reports whether it was woken.
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
				return false // the next round notices too
			}
		}
	}
}

// renew extends the lease. An error is logged; the rest of the lease remains.
func (w *worker) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, limits.Renewing(w.config.LeaseDuration))
	defer cancel()
	err := w.cursor.Renew(ctx)
	if err != nil && !errors.Is(err, outbox.ErrLeaseLost) && ctx.Err() == nil {
		w.logger.Error("Cannot extend the lease of a policy, trying again", err, nil)
	}
	return err
}

// renewEvery leaves room for two failed renewals.
func (w *worker) renewEvery() time.Duration { return max(w.config.LeaseDuration/3, time.Millisecond) }

func (w *worker) release(ctx context.Context) {
	if w.leased.IsZero() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeGrace/2)
	defer cancel()
	if err := w.cursor.Release(ctx); err != nil {
		w.logger.Error("Cannot release the lease of a policy; it will expire", err, nil)
	}
}

// wake ends the pause if the topics may concern the policy; none means all.
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
	flow.Notify(w.woken)
}
