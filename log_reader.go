package outbox

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/incursa/watermill-outbox/internal/limits"
	"github.com/incursa/watermill-outbox/internal/quiet"
)

// A logReader delivers one topic of the log to one subscription of a consumer group: in order, one message at a time, and
// only while it has the group's lease. The group's position is written behind the acks: after a crash, what was acked
// since is delivered again.
type logReader struct {
	cursor   *Cursor
	config   SubscriberConfig
	pacer    *pacer
	logger   watermill.LoggerAdapter
	troubles *quiet.Troubles

	closing <-chan struct{}

	acked   int64     // up to here the group has answered
	written int64     // and up to here the database knows
	leased  time.Time // zero while the lease is not held
}

const cannotRead = "Cannot read the log, trying again"

// logBatch is how many messages are read at once.
const logBatch = 100

// flushEvery is how much work a crash may have delivered again.
const flushEvery = 100 * time.Millisecond

// run delivers until ctx ends or the Subscriber closes.
func (r *logReader) run(ctx context.Context, out chan<- *message.Message) {
	stop := make(chan struct{})
	go func() { // ends with either
		select {
		case <-ctx.Done():
		case <-r.closing:
		}
		close(stop)
	}()
	work := context.WithoutCancel(ctx) // the database is asked with limits of its own
	outage := outagePauseMin
	for !isClosed(stop) {
		found, err := r.turn(work, stop, out)
		switch {
		case errors.Is(err, ErrLeaseHeld), errors.Is(err, ErrLeaseLost):
			r.leased = time.Time{}
			r.pacer.idle(nil, stop)
		case err != nil:
			r.troubles.Error(cannotRead, err, nil)
			r.pacer.pause(outage, nil, stop)
			outage = min(2*outage, outagePauseMax)
			continue
		case found:
			r.pacer.busy()
		default:
			r.pacer.idle(nil, stop)
		}
		r.troubles.Over(cannotRead)
		outage = outagePauseMin
	}
	if !r.leased.IsZero() {
		ctx, cancel := context.WithTimeout(work, closeGrace)
		defer cancel()
		if err := r.giveBack(ctx); err != nil && !errors.Is(err, ErrLeaseLost) {
			r.logger.Error("Cannot give the group's lease back; it runs out", err, nil)
		}
	}
}

// turn reads and delivers one batch. It answers whether there was any.
func (r *logReader) turn(ctx context.Context, stop <-chan struct{}, out chan<- *message.Message) (found bool, err error) {
	if time.Since(r.leased) >= limits.RenewEvery(r.config.LeaseDuration) {
		if err := r.lease(ctx); err != nil {
			return false, err
		}
	}
	messages, err := r.cursor.Read(ctx, r.acked, logBatch)
	if err != nil {
		return false, err
	}
	for i := range messages {
		if err := r.deliver(ctx, &messages[i], stop, out); err != nil || isClosed(stop) {
			return true, err
		}
		if r.acked != r.written && time.Since(r.leased) >= flushEvery {
			if err := r.lease(ctx); err != nil {
				return true, err
			}
		}
	}
	if r.acked != r.written {
		return true, r.lease(ctx)
	}
	return len(messages) > 0, nil
}

// lease takes the lease, or keeps it, and writes the group's position.
func (r *logReader) lease(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.config.LeaseDuration)
	defer cancel()
	held, at := !r.leased.IsZero(), time.Now()
	if held || r.acked != r.written { // what was acked counts after an interruption too, unless another has had the lease
		err := r.cursor.Advance(ctx, r.cursor.outbox.db, r.acked)
		if err == nil {
			r.written, r.leased = r.acked, at
			return nil
		}
		if held || !errors.Is(err, ErrLeaseLost) {
			return err
		}
	}
	position, err := r.cursor.Acquire(ctx)
	if err != nil {
		r.written = r.acked // which nobody asks for any more
		return err
	}
	r.acked, r.written, r.leased = position, position, at
	return nil
}

func (r *logReader) giveBack(ctx context.Context) error {
	if r.acked != r.written {
		if err := r.cursor.Advance(ctx, r.cursor.outbox.db, r.acked); err != nil {
			return err
		}
	}
	return r.cursor.Release(ctx)
}

// deliver hands out one message, again and again until it is acked.
func (r *logReader) deliver(ctx context.Context, l *LogMessage, stop <-chan struct{}, out chan<- *message.Message) error {
	if l.Malformed != nil {
		r.logger.Error("A message of the log cannot be read; it is delivered without its headers", l.Malformed, watermill.LogFields{
			"message_id": l.ID.String(), "position": l.Position})
	}
	for try := 0; ; try++ {
		acked, err := r.attempt(ctx, l, stop, out)
		if acked {
			r.acked = l.Position
		}
		if acked || err != nil || isClosed(stop) {
			return err
		}
		if !r.pacer.pause(max(r.config.Backoff(min(try, 30)), 0), nil, stop) && isClosed(stop) {
			return nil
		}
	}
}

// attempt hands out a message once and waits for its answer, keeping the lease meanwhile.
func (r *logReader) attempt(ctx context.Context, l *LogMessage, stop <-chan struct{}, out chan<- *message.Message) (acked bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	msg := l.toWatermill()
	msg.SetContext(ctx)
	renew := time.NewTicker(limits.RenewEvery(r.config.LeaseDuration))
	defer renew.Stop()
	handout := out
	var expire <-chan time.Time
	for {
		select {
		case handout <- msg:
			handout = nil
		case <-msg.Acked():
			return true, nil
		case <-msg.Nacked():
			r.logger.Info("A handler did not succeed; the message is delivered to its group again", watermill.LogFields{
				"message_id": l.ID.String(), "position": l.Position})
			return false, nil
		case <-renew.C:
			if err := r.lease(ctx); err != nil && (errors.Is(err, ErrLeaseLost) || time.Since(r.leased) > r.config.LeaseDuration) {
				return false, ErrLeaseLost // the message's context ends: its late answer changes nothing
			}
		case <-stop:
			if handout != nil {
				return false, nil
			}
			stop = nil
			expire = time.After(r.config.DrainTimeout)
		case <-expire:
			return false, nil
		}
	}
}
