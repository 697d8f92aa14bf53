package outbox

import (
	"context"
	"errors"
	"maps"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/flow"
	"github.com/incursa/watermill-outbox/internal/limits"
)

// errReaderDied is the reason of a message whose last attempt left no error.
var errReaderDied = errors.New("the last process that handled the message ended before it acked or nacked, and no attempts are left")

const groupIsBlocked = "A message holds up its consumer group: it has no attempts left, and OnGroupFailure is Block"

// deliver hands out one message until the group is done with it: acked, or given up. again means that the message is a
// requeued dead letter, which the group has already passed.
func (r *logReader) deliver(ctx context.Context, l *LogMessage, again bool, stop <-chan struct{}, out chan<- *message.Message) error {
	if l.Malformed != nil {
		r.logger.Error("A message of the log cannot be read; it is delivered without its headers", l.Malformed, watermill.LogFields{
			"message_id": l.ID.String(), "position": l.Position})
	}
	if r.trial.position != l.Position {
		r.trial = trial{position: l.Position, written: true}
	}
	for {
		if r.over(again) {
			return r.giveUp(ctx, l, again)
		}
		spent := r.trial.attempts
		if err := r.spend(ctx); err != nil {
			return err
		}
		a, err := r.attempt(ctx, l, spent, again, stop, out)
		r.settled(l, a, spent)
		if a.outcome == Ack {
			switch {
			case !again:
				r.acked = l.Position
			case !a.inTx: // otherwise the handler's transaction decides
				err = errors.Join(err, r.redeemed(ctx, l))
			}
			return err
		}
		if err == nil && a.inTx {
			err = r.lease(ctx) // which tells whether the group has moved on
		}
		switch {
		case err != nil:
			return err
		case r.passed(l, again):
			return nil
		case r.over(again):
			continue
		case flow.IsClosed(stop):
			return nil
		}
		wait := a.delay
		if wait <= 0 {
			wait = r.config.Backoff(min(max(r.trial.attempts-1, 0), 30))
		}
		if err := r.rest(ctx, max(wait, 0), stop); err != nil || flow.IsClosed(stop) || r.passed(l, again) {
			return err
		}
		if again && a.inTx {
			return nil // and look whether it still is a dead letter
		}
	}
}

// passed reports whether a handler's transaction has moved the group past the message.
func (r *logReader) passed(l *LogMessage, again bool) bool { return !again && r.acked >= l.Position }

// over reports whether the message has no attempts left and the group goes on without it.
func (r *logReader) over(again bool) bool {
	return r.exhausted() && (again || r.config.OnGroupFailure == DeadLetter)
}

func (r *logReader) exhausted() bool {
	return r.trial.hopeless || r.config.MaxAttempts != -1 && r.trial.attempts >= r.config.MaxAttempts
}

// spend renews the lease when it is time. While the reader is careful, it also writes the attempt that is about to begin.
func (r *logReader) spend(ctx context.Context) error {
	if r.careful == 0 {
		return r.keep(ctx)
	}
	r.trial.attempts++
	r.trial.written = false
	err := r.lease(ctx)
	if err != nil {
		r.trial.attempts--
		r.trial.written = false
	}
	return err
}

// A logAnswer is the result of one delivery.
type logAnswer struct {
	outcome Outcome
	reason  error
	handed  bool
	delay   time.Duration // chosen by the handler
	hung    bool          // the handler did not answer in time
	inTx    bool          // the handler settled the message in its own transaction, or if it did not ack, tried to
	took    time.Duration
	waited  time.Duration
}

// attempt hands out a message once and waits for its answer, and keeps the lease meanwhile. The outcome Release means that
// the message was not tried, or not to the end.
func (r *logReader) attempt(ctx context.Context, l *LogMessage, spent int, again bool, stop <-chan struct{}, out chan<- *message.Message) (a logAnswer, err error) {
	d := r.delivery(l, spent, again)
	d.open(ctx)
	a.outcome = Release
	var renewing chan renewal // nil while none is under way
	defer func() { err = r.ended(d, renewing, err) }()
	renew := time.NewTicker(limits.RenewEvery(r.config.LeaseDuration))
	defer renew.Stop()
	trusted := limits.Trusted(r.config.LeaseDuration)
	over := time.NewTimer(trusted - time.Since(r.leased))
	defer over.Stop()
	handout := out
	var handed time.Time
	var late <-chan time.Time // the end of MaxHandlerTime, and then of DrainTimeout
	for {
		if time.Since(r.leased) >= trusted {
			return a, ErrLeaseLost
		}
		select {
		case handout <- d.msg:
			handout, a.handed, handed, late = nil, true, time.Now(), r.handlerTime()
			a.waited = d.waited(handed)
			r.announce(d)
		case <-d.msg.Acked():
			a.outcome, a.inTx, a.took = Ack, d.settledInTx.Load() != nil, time.Since(handed)
			return a, nil
		case <-d.msg.Nacked():
			a.took, a.inTx = time.Since(handed), d.place.tried.Load()
			return a.nacked(d), nil
		case <-late:
			if d.outOfTime(r.logger) {
				late = time.After(r.config.DrainTimeout)
				continue
			}
			a.outcome, a.reason, a.took, a.hung, a.inTx = Retry, errHandlerTime, time.Since(handed), true, d.place.tried.Load()
			return a, nil
		case <-renew.C:
			if renewing == nil {
				renewing = r.renew(ctx)
			}
		case done := <-renewing:
			renewing = nil
			if err := r.renewed(done); err != nil {
				return a, err
			}
		case <-over.C:
			over.Reset(trusted - time.Since(r.leased))
		case <-stop:
			if handout != nil {
				return a, nil
			}
			stop = nil
		case <-r.drained:
			if handout == nil {
				r.logger.Info("Handler did not finish in time; its message will be delivered to its group again", d.logFields())
			}
			return a, nil
		}
	}
}

// handlerTime is over when a handler that begins now has had its time; nil is never.
func (r *logReader) handlerTime() <-chan time.Time {
	if r.config.MaxHandlerTime == never {
		return nil
	}
	return time.After(r.config.MaxHandlerTime)
}

// nacked is the answer of a handler that did not succeed.
func (a logAnswer) nacked(d *Delivery) logAnswer {
	a.outcome, a.reason, a.delay = Retry, d.reason(), d.ownDelay()
	if a.reason == nil {
		a.reason = errNacked
	}
	if base.IsUnavailable(a.reason) {
		a.outcome = Release
	}
	return a
}

// ended closes a delivery, and waits for the renewal that may be under way. A handler that has not answered is left behind, and
// its SettleTx is refused from now on, although this reader may still have the group, or have it again.
func (r *logReader) ended(d *Delivery, renewing chan renewal, err error) error {
	if errors.Is(err, ErrLeaseLost) { // before the wait, so that the handler knows at once
		d.lose()
	} else if !d.isAnswered() {
		d.lost.Store(true)
	}
	d.close()
	if renewing != nil {
		err = errors.Join(err, r.renewed(<-renewing))
	}
	return err
}

func (r *logReader) delivery(l *LogMessage, spent int, again bool) *Delivery {
	c := &Claimed{Message: l.Message, RetryCount: spent, CreatedAt: l.CreatedAt, Malformed: l.Malformed}
	c.Headers = maps.Clone(l.Headers) // a handler may change them, and the next attempt needs the originals
	if c.Headers[base.HeaderEventVersion] != "" {
		c.Headers[base.HeaderEventPosition] = strconv.FormatInt(l.Position, 10)
	}
	return &Delivery{claimed: c, outbox: r.cursor.outbox, place: r.place(l, again)}
}

// A renewal is the result of a call that ran beside the handler.
type renewal struct {
	at    time.Time
	state groupState
	err   error
}

// renew extends the lease in the background, because both the call and the handler may hang.
func (r *logReader) renew(ctx context.Context) chan renewal {
	done := make(chan renewal, 1)
	arg, at := r.progress(), time.Now()
	go func() {
		ctx, cancel := context.WithTimeout(ctx, limits.Renewing(r.config.LeaseDuration))
		defer cancel()
		state, err := r.write(ctx, arg)
		done <- renewal{at, state, err}
	}()
	return done
}

// renewed returns an error if the lease is lost. Other errors are logged: the lease is still valid for a while, and the next
// try is soon.
func (r *logReader) renewed(done renewal) error {
	var wentBack *LogWentBackError
	switch {
	case done.err == nil:
		r.noteWritten(done.at, done.state)
	case errors.Is(done.err, ErrLeaseLost), errors.As(done.err, &wentBack):
		return done.err // the message's context ends, and a late answer changes nothing
	default:
		r.logger.Debug("Cannot extend the lease of a consumer group, trying again", watermill.LogFields{"err": done.err})
	}
	return nil
}

// settled records the attempt that a delivery spent, and reports it.
func (r *logReader) settled(l *LogMessage, a logAnswer, spent int) {
	if r.careful > 0 && a.handed {
		r.careful--
	}
	if a.outcome == Retry {
		spent++
	}
	if r.trial.attempts != spent {
		r.trial.attempts, r.trial.written = spent, false
	}
	if !a.handed {
		return
	}
	event := HandledEvent{
		Store: r.config.Store, Group: r.config.ConsumerGroup, Topic: r.cursor.config.Topic,
		MessageID: l.ID, Position: l.Position, Attempt: spent, Outcome: a.outcome, Took: a.took, Wait: a.waited, Err: a.reason}
	if a.outcome != Retry {
		event.Attempt++
	} else {
		r.trial.reason, r.trial.hopeless = a.reason, IsPermanent(a.reason)
		if r.exhausted() {
			event.Outcome = Fail
		}
	}
	r.config.Hooks.groupSettled(event)
	if a.hung {
		r.config.Hooks.handlerTimedOut(event)
	}
	if a.reason == nil {
		return
	}
	fields := watermill.LogFields{
		"message_id": l.ID.String(), "message_uuid": l.UUID, "position": l.Position, "attempt": event.Attempt, "outcome": event.Outcome.String()}
	r.logger.Error("Handler did not succeed", a.reason, fields)
	if event.Outcome == Fail && r.config.OnGroupFailure == Block {
		r.logger.Error(groupIsBlocked, a.reason, fields)
	}
}

// rest waits before the next attempt, and keeps the lease meanwhile.
func (r *logReader) rest(ctx context.Context, d time.Duration, stop <-chan struct{}) error {
	if !r.trial.written {
		if err := r.lease(ctx); err != nil {
			return err
		}
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	renew := time.NewTicker(limits.RenewEvery(r.config.LeaseDuration))
	defer renew.Stop()
	for {
		select {
		case <-timer.C:
			return nil
		case <-stop:
			return nil
		case <-renew.C:
			if err := r.lease(ctx); err != nil {
				return err
			}
		}
	}
}
