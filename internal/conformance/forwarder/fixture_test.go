package forwarder_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/incursa/watermill-outbox/forwarder"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
)

// A fixture is an outbox, and a broker that does what the test says.
type fixture struct {
	*testoutbox.Outbox
	broker *broker
}

func forEach(t *testing.T, test func(t *testing.T, f *fixture)) {
	t.Helper()
	testoutbox.ForEach(t, func(t *testing.T, o *testoutbox.Outbox) {
		test(t, &fixture{o, &broker{answer: takes, calls: make(chan struct{}, 1)}})
	})
}

var errAway = errors.New("connection refused")

// What a broker may answer.
var (
	takes = func(string, []*message.Message) error { return nil }
	away  = func(string, []*message.Message) error { return errAway }
)

// except answers err for the messages of some UUIDs, one by one or, as most publishers do, for all of them.
func except(err error, each bool, uuids ...string) func(string, []*message.Message) error {
	return func(_ string, messages []*message.Message) error {
		batch := &forwarder.BatchError{Errs: make([]error, len(messages))}
		var first error
		for i, msg := range messages {
			if slices.Contains(uuids, msg.UUID) {
				batch.Errs[i], first = err, err
			}
		}
		if first != nil && each {
			return batch
		}
		return first
	}
}

// A broker is a publisher that the test directs.
type broker struct {
	calls chan struct{} // gets a token with each Publish

	mu     sync.Mutex
	answer func(topic string, messages []*message.Message) error
	got    []*message.Message // what it took
	topics []string           // where to
	tried  int
}

func (b *broker) Publish(topic string, messages ...*message.Message) error {
	b.mu.Lock()
	answer := b.answer
	b.tried++
	b.mu.Unlock()
	err := answer(topic, messages)
	var batch *forwarder.BatchError
	exact := errors.As(err, &batch)
	b.mu.Lock()
	for i, msg := range messages {
		if err == nil || exact && batch.Errs[i] == nil {
			b.got, b.topics = append(b.got, msg), append(b.topics, topic)
		}
	}
	b.mu.Unlock()
	select {
	case b.calls <- struct{}{}:
	default:
	}
	return err
}

func (b *broker) Close() error { return nil }

func (b *broker) answers(answer func(string, []*message.Message) error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answer = answer
}

// uuids are those of what it took, in order.
func (b *broker) uuids() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := make([]string, len(b.got))
	for i, msg := range b.got {
		list[i] = msg.UUID
	}
	return list
}

func (b *broker) tries() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.tried
}

// triedAgain waits for so many more calls.
func (f *fixture) triedAgain(times int) {
	f.T.Helper()
	until := f.broker.tries() + times
	timer := time.NewTimer(testoutbox.Patience)
	defer timer.Stop()
	for f.broker.tries() < until {
		select {
		case <-f.broker.calls:
		case <-timer.C:
			f.FailNow("the forwarder does not try")
		}
	}
}

// states remembers what OnState was told.
type states struct {
	mu   sync.Mutex
	list []forwarder.State
}

func (s *states) add(state forwarder.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, state)
}

func (s *states) all() []forwarder.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.list)
}

// config is for the topic "orders", with short pauses.
func (f *fixture) config(options ...func(*forwarder.Config)) forwarder.Config {
	config := forwarder.Config{
		Topics: []string{"orders"}, BatchSize: 10, RetryMin: time.Millisecond, RetryMax: 5 * time.Millisecond, Subscriber: f.Subscriber(),
	}
	for _, option := range options {
		option(&config)
	}
	return config
}

// start runs a forwarder until the test ends.
func (f *fixture) start(options ...func(*forwarder.Config)) *forwarder.Forwarder {
	f.T.Helper()
	return f.startOn(f.DB.DB, options...)
}

func (f *fixture) startOn(db *sql.DB, options ...func(*forwarder.Config)) *forwarder.Forwarder {
	f.T.Helper()
	fw, err := forwarder.New(db, f.broker, f.config(options...), nil)
	f.NoError(err)
	ended := make(chan error, 1)
	go func() { ended <- fw.Run(context.WithoutCancel(f.T.Context())) }()
	f.T.Cleanup(func() {
		if err := errors.Join(fw.Close(), <-ended); err != nil {
			f.T.Errorf("closing the forwarder: %v", err)
		}
	})
	<-fw.Running()
	return fw
}
