package faults_test

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/inbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/seam"
	"github.com/incursa/watermill-outbox/join"
	"github.com/incursa/watermill-outbox/middleware"
)

// What runs beside the operations of the test under faults: two Subscribers on the queue, one on the inbox, two readers for
// each of two consumer groups, and two sequencers.

// handledTopics are those of the Subscribers; what is manual or stale is left to operations until the faults stop.
var handledTopics = []string{"ack", "nack", "tx", "tx undone", "slow", "hang", "poison", "step", "failing", "next", join.DefaultWaitTopic}

var groupsUnderFaults = []string{"first group", "second group"}

func (r *faultRun) startBeside() {
	r.T.Helper()
	for range 2 {
		s := r.subscriberBeside(r.beside)
		for _, topic := range handledTopics {
			r.serve(s, topic, "queue", r.handle)
		}
		for _, group := range groupsUnderFaults {
			s := r.subscriberBeside(r.beside, func(c *outbox.SubscriberConfig) { c.ConsumerGroup = group })
			for _, topic := range []string{"log", "ack"} {
				reader := group + " of " + topic
				r.serve(s, topic, reader, func(msg *message.Message) error { return r.readByGroup(reader, msg) })
			}
		}
	}
	r.startInbox()

	ctx, stop := context.WithCancel(context.WithoutCancel(r.Context()))
	r.stopSequencers = stop
	for range 2 {
		s, err := outbox.NewSequencer(r.beside, outbox.SequencerConfig{Dialect: r.Config.Dialect, Schema: r.Config.Schema}, nil)
		r.NoError(err)
		r.sequencers.Go(func() {
			if err := s.Run(ctx); err != nil {
				r.book.mistake("the sequencer: %v", err)
			}
		})
	}
	for _, group := range cursorsUnderFaults { // they exist before anything is purged from the log
		c, err := seam.NewCursor[outbox.LogMessage](r.Outbox, seam.CursorConfig{Group: group})
		r.NoError(err)
		_, err = c.Acquire(r.Context())
		r.NoError(err)
		r.NoError(c.Release(r.Context()))
	}
}

func (r *faultRun) subscriberBeside(db *sql.DB, options ...func(*outbox.SubscriberConfig)) *outbox.Subscriber {
	r.T.Helper()
	s, err := outbox.NewSubscriber(db, r.subscriberConfig(options...), nil)
	r.NoError(err)
	r.subscribers = append(r.subscribers, s)
	return s
}

func (r *faultRun) subscriberConfig(options ...func(*outbox.SubscriberConfig)) outbox.SubscriberConfig {
	config := outbox.SubscriberConfig{
		Dialect: r.Config.Dialect, Schema: r.Config.Schema, LeaseDuration: leaseUnderFaults, MaxAttempts: -1, AllowCompeting: true,
		PollInterval: 5 * time.Millisecond, MaxPollInterval: 50 * time.Millisecond, DrainTimeout: 5 * time.Second, UnhandledAfter: time.Second,
		Backoff: func(int) time.Duration { return 5 * time.Millisecond },
	}
	for _, option := range options {
		option(&config)
	}
	return config
}

func (r *faultRun) startInbox() {
	r.T.Helper()
	s, err := inbox.NewSubscriber(r.beside, r.subscriberConfig(), nil)
	r.NoError(err)
	r.subscribers = append(r.subscribers, s)
	once, err := middleware.Inbox(r.besideInbox, suite.Identity)
	r.NoError(err)
	handler := once(func(msg *message.Message) ([]*message.Message, error) {
		tx, _ := outbox.TxFrom(msg.Context())
		return nil, r.effect(msg.Context(), tx, "received", string(msg.Payload))
	})
	r.serve(s, suite.Identity.Handler, "inbox", func(msg *message.Message) error {
		r.note(msg)
		_, err := handler(msg)
		return err
	})
}

// comeAndGo subscribes for a moment, and closes while statements may hang.
func (op *faultOperation) comeAndGo(context.Context) {
	const drain = time.Second
	s, err := outbox.NewSubscriber(op.beside, op.subscriberConfig(func(c *outbox.SubscriberConfig) { c.DrainTimeout = drain }), nil)
	op.NoError(err)
	for _, topic := range []string{"ack", "tx", "slow"} {
		op.serve(s, topic, "queue", op.handle)
	}
	_ = within(op.Context(), time.Duration(op.random.IntN(100))*time.Millisecond)
	started := time.Now()
	op.called("Close", s.Close())
	if took, most := time.Since(started), drain+suite.Patience; took > most {
		op.book.mistake("Close took %v, which is more than %v", took, most)
	}
}

// serve handles each message of a subscription by itself. No two handlers of one reader may have a message at once.
func (r *faultRun) serve(s *outbox.Subscriber, topic, reader string, handle func(*message.Message) error) {
	r.T.Helper()
	messages, err := s.Subscribe(context.WithoutCancel(r.Context()), topic)
	r.NoError(err)
	r.handlers.Go(func() {
		for msg := range messages {
			r.handlers.Go(func() { r.run(reader, msg, handle) })
		}
	})
}

func (r *faultRun) run(reader string, msg *message.Message, handle func(*message.Message) error) {
	leave := r.book.enter(msg.Context(), reader+" "+msg.UUID)
	err := handle(msg)
	leave()
	if err == nil {
		msg.Ack()
		return
	}
	if d, ok := outbox.DeliveryFrom(msg.Context()); ok {
		d.SetErr(err)
	}
	msg.Nack()
}

// note enters a delivery in the book and returns how often its message was handled.
func (r *faultRun) note(msg *message.Message) int {
	d, ok := outbox.DeliveryFrom(msg.Context())
	if !ok {
		r.book.mistake("a message has no delivery: %s", msg.UUID)
		return 1
	}
	return r.book.handled(string(msg.Payload), d.MessageID())
}

var (
	errNotThisTime = errors.New("not this time")
	errEnded       = errors.New("the context has ended")
)

// handle does what the topic says.
func (r *faultRun) handle(msg *message.Message) error {
	d, _ := outbox.DeliveryFrom(msg.Context())
	if d.Topic() == join.DefaultWaitTopic {
		return r.besideJoins.HandleWait(msg)
	}
	first := r.note(msg) == 1
	ctx := msg.Context()
	switch d.Topic() {
	case "nack":
		if first {
			return errNotThisTime
		}
	case "poison":
		if first {
			return outbox.Permanent(errNotThisTime)
		}
	case "failing":
		return outbox.Permanent(errNotThisTime)
	case "slow":
		return within(ctx, leaseUnderFaults*3/2)
	case "hang":
		if first {
			_ = within(ctx, 3*leaseUnderFaults)
			return errEnded
		}
	case "tx":
		return outbox.InTx(ctx, r.beside, func(ctx context.Context, tx *sql.Tx) error {
			if err := r.effect(ctx, tx, "handled", string(msg.Payload)); err != nil {
				return err
			}
			return d.SettleTx(ctx, tx, outbox.Ack)
		})
	case "tx undone": // what it settled is rolled back; then it acks
		_ = outbox.InTx(ctx, r.beside, func(ctx context.Context, tx *sql.Tx) error {
			return errors.Join(d.SettleTx(ctx, tx, outbox.Ack), errChangedMind)
		})
	}
	return nil
}

// within waits for some time, unless the context ends first.
func within(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return errEnded
	}
}

// readByGroup nacks some messages once, which are then delivered again before any other.
func (r *faultRun) readByGroup(reader string, msg *message.Message) error {
	times := r.book.read(reader, msg.UUID)
	if times == 1 && len(msg.UUID)%5 == 0 && msg.UUID[len(msg.UUID)-1] == '1' {
		return errNotThisTime
	}
	return nil
}

// stopBeside closes everything; nothing is at fault by now.
func (r *faultRun) stopBeside() {
	r.T.Helper()
	for _, s := range r.subscribers {
		if err := s.Close(); err != nil {
			r.book.mistake("Close: %v", err)
		}
	}
	r.stopSequencers()
	r.sequencers.Wait()
	r.handlers.Wait()
}
