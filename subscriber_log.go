package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/flow"
	"github.com/incursa/watermill-outbox/internal/limits"
	"github.com/incursa/watermill-outbox/internal/quiet"
	"github.com/incursa/watermill-outbox/internal/seam"
)

// A logReader delivers one topic of the log to one subscription of a consumer group: in order, one message at a time, and
// only while it has the group's lease. The group's position is written some time after the acks: after a crash, messages
// acked since then are delivered again.
type logReader struct {
	cursor   *cursor
	config   SubscriberConfig
	pacer    *flow.Pacer
	logger   watermill.LoggerAdapter
	troubles *quiet.Troubles
	announce func(*Delivery) // logs a message that is handed out

	closing <-chan struct{}
	expire  <-chan struct{} // closed by Shutdown: handlers have run out of time
	drained chan struct{}   // closed then, or at the end of DrainTimeout

	acked    int64             // the position up to which the group has acked
	written  int64             // the position in the database
	leased   time.Time         // when the lease was last requested; zero while it is not held
	trial    trial             // of the message that is being delivered
	lagged   bool              // the last read found something
	careful  int               // how many more messages have their attempts written before they are handed out
	looked   time.Time         // when requeued dead letters were last looked for
	wentBack *LogWentBackError // completed by the next lease
}

// A trial is what a group has spent on a message that it has not passed.
type trial struct {
	position int64
	attempts int
	reason   error // of the last one
	hopeless bool  // the reason is permanent
	written  bool  // it is in the database
}

const cannotRead = "Cannot read the log, trying again"

// logBatch is how many messages are read at once.
const logBatch = 100

// flushEvery is how often the position is written: a crash repeats at most this much work.
const flushEvery = 100 * time.Millisecond

// lookEvery is how long a requeued dead letter may wait for its group.
const lookEvery = time.Second

// newLogReader makes the reader of a topic.
func (s *Subscriber) newLogReader(topic string) *logReader {
	logger := s.logger.With(watermill.LogFields{"topic": topic, "group": s.config.ConsumerGroup})
	return &logReader{
		cursor: s.groupCursor(topic), config: s.config, pacer: flow.NewPacer(s.config.PollInterval, s.config.MaxPollInterval),
		logger: logger, troubles: quiet.New(logger), announce: s.logDelivery,
		closing: s.closing, expire: s.settler.expire, drained: make(chan struct{}),
	}
}

func (s *Subscriber) groupCursor(topic string) *cursor {
	return s.outbox.cursor(seam.CursorConfig{
		Group: s.config.ConsumerGroup, Topic: topic, Lease: s.config.LeaseDuration, MaxBytes: s.config.MaxInFlightBytes})
}

// run delivers until ctx ends or the Subscriber closes. The message that is then being handled may be finished within
// DrainTimeout, or until Shutdown ends it; database calls end within closeGrace after that. It returns an error if the lease
// could not be released.
func (r *logReader) run(ctx context.Context, out chan<- *message.Message) error {
	work, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	reading, stopReading := context.WithCancel(work)
	defer stopReading()
	go r.endWith(ctx, work, stopReading, giveUp)
	outage := flow.Outage()
	for stop := reading.Done(); reading.Err() == nil; {
		found, err := r.deliverBatch(work, reading, out)
		var wentBack *LogWentBackError
		switch {
		case reading.Err() != nil:
		case errors.Is(err, base.ErrLeaseHeld), errors.Is(err, ErrLeaseLost):
			r.leased = time.Time{}
			r.pacer.Idle(nil, stop)
		case errors.As(err, &wentBack):
			r.forget(wentBack)
		case err != nil:
			r.troubles.Error(cannotRead, err, nil)
			r.pacer.Pause(outage.Next(), nil, stop)
			continue
		case found:
			r.pacer.Busy()
		default:
			r.pacer.Idle(nil, stop)
		}
		r.troubles.Over(cannotRead)
		outage.Reset()
	}
	if r.leased.IsZero() {
		return nil
	}
	return r.giveBack(work)
}

// endWith ends the reading with the subscription or the Subscriber, and then the work.
func (r *logReader) endWith(subscription, work context.Context, stopReading, giveUp func()) {
	select {
	case <-subscription.Done():
	case <-r.closing:
	}
	stopReading()
	endAfter(work, r.config.DrainTimeout, r.expire, func() { close(r.drained) }, closeGrace*2/3, giveUp)
}

// deliverBatch reads and delivers one batch, and reports whether there was any. reading ends when nothing more may be handed
// out.
func (r *logReader) deliverBatch(work, reading context.Context, out chan<- *message.Message) (found bool, err error) {
	if err := r.keep(work); err != nil {
		return false, err
	}
	if found, err := r.redeliver(work, reading, out); err != nil || reading.Err() != nil {
		return found, err
	}
	messages, err := r.read(reading)
	if err != nil {
		return false, err
	}
	for i := range messages {
		if err := r.deliver(work, &messages[i], false, reading.Done(), out); err != nil || reading.Err() != nil {
			return true, err
		}
		messages[i].Message = Message{} // its payload is not needed while the rest of the batch is handled
		if r.acked != r.written && time.Since(r.leased) >= flushEvery {
			if err := r.lease(work); err != nil {
				return true, err
			}
		}
	}
	if r.acked != r.written {
		return true, r.lease(work)
	}
	return len(messages) > 0, nil
}

func (r *logReader) read(ctx context.Context) ([]LogMessage, error) {
	limited, cancel := context.WithTimeout(ctx, limits.Reading(r.config.LeaseDuration))
	defer cancel()
	started := time.Now()
	messages, err := r.cursor.Read(limited, r.acked, logBatch)
	event := GroupReadEvent{
		Store: r.config.Store, Group: r.config.ConsumerGroup, Topic: r.cursor.config.Topic,
		Messages: len(messages), Position: r.acked, Took: time.Since(started), Err: err}
	if len(messages) > 0 {
		event.Lag = messages[0].Age
	}
	if err != nil && ctx.Err() != nil {
		return nil, err // it was ended, which is no failure
	}
	if r.lagged || len(messages) > 0 || err != nil {
		r.config.Hooks.groupRead(event)
	}
	r.lagged = len(messages) > 0
	return messages, err
}

// keep renews the lease when it is time. It is called before each message is handed out: a read may have taken long.
func (r *logReader) keep(ctx context.Context) error {
	if time.Since(r.leased) < limits.RenewEvery(r.config.LeaseDuration) {
		return nil
	}
	return r.lease(ctx)
}

// lease takes or extends the lease, and writes the group's position and the attempts spent on the next message.
func (r *logReader) lease(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, limits.Renewing(r.config.LeaseDuration))
	defer cancel()
	held, at := !r.leased.IsZero(), time.Now()
	if held || r.acked != r.written { // acks count even after an interruption, unless another reader has had the lease
		s, err := r.write(ctx, r.progress())
		if err == nil {
			r.noteWritten(at, s)
			return nil
		}
		if held || !errors.Is(err, ErrLeaseLost) {
			return err
		}
		r.acked = r.written // the other reader's position counts
	}
	s, err := r.cursor.acquire(ctx)
	if err != nil {
		return err
	}
	r.begin(s, at)
	return nil
}

// begin goes on from the group's position. If a reader did not release its lease, one of the next messages may have
// killed it, so their attempts are written before they are handed out. Doing that always would cost a write per message.
func (r *logReader) begin(s groupState, at time.Time) {
	if s.position < r.written && r.wentBack == nil {
		r.wentBack = &LogWentBackError{Store: r.config.Store, Group: r.config.ConsumerGroup, Topic: r.cursor.config.Topic, Reader: r.written}
	}
	if e := r.wentBack; e != nil {
		e.Position, e.Last = s.position, s.last
		r.logger.Error("The log has come back older than its reader, which goes on from the group's position", e, nil)
		r.config.Hooks.logWentBack(e)
		r.wentBack = nil
	}
	r.acked, r.written, r.leased = s.position, s.position, at
	if s.interrupted {
		r.careful = logBatch
	}
	r.trial = trial{position: s.tried, attempts: s.attempts, written: true}
}

// forget drops this reader's state; the next lease reads the group's.
func (r *logReader) forget(e *LogWentBackError) {
	r.leased, r.acked, r.wentBack = time.Time{}, r.written, e
}

// progress returns what the database may not have yet.
func (r *logReader) progress() leaseArg {
	arg := leaseArg{From: r.written, Position: r.acked, LeaseMS: r.config.LeaseDuration.Milliseconds()}
	if !r.trial.written {
		arg.Tried, arg.Attempts = r.trial.position, r.trial.attempts
	}
	return arg
}

func (r *logReader) write(ctx context.Context, arg leaseArg) (groupState, error) {
	return r.cursor.move(ctx, r.cursor.outbox.db, arg)
}

// noteWritten records a successful write that was sent at the given time; nothing else has changed since. If a handler's own
// transaction has moved the group on, it is there that the reader goes on, too.
func (r *logReader) noteWritten(at time.Time, s groupState) {
	r.acked = max(r.acked, s.position)
	r.written, r.leased, r.trial.written = r.acked, at, true
}

func (r *logReader) giveBack(ctx context.Context) error {
	err := r.lease(ctx)
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, limits.Renewing(r.config.LeaseDuration))
		defer cancel()
		err = r.cursor.Release(ctx)
	}
	if err == nil || errors.Is(err, ErrLeaseLost) {
		return nil
	}
	r.logger.Error("Cannot release the group's lease; it will expire", err, nil)
	return fmt.Errorf("outbox: cannot release the lease of consumer group %q on topic %q; it will expire: %w",
		r.config.ConsumerGroup, r.cursor.config.Topic, err)
}
