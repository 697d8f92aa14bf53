package suite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/middleware"
)

// Patience is how long a test waits for what has to happen.
const Patience = 2 * time.Minute

// Due is a context whose deadline has come, and that leaves all the time for what follows it.
type Due struct{ context.Context } //nolint:containedctx // it is one itself

// Deadline is of context.Context.
func (Due) Deadline() (time.Time, bool) { return time.Now(), true }

// SubscriberOn returns a subscriber that polls quickly and is closed when the test ends.
func (f *Fixture) SubscriberOn(db *sql.DB, logger watermill.LoggerAdapter, options ...func(*outbox.SubscriberConfig)) *outbox.Subscriber {
	f.T.Helper()
	config := outbox.SubscriberConfig{
		Dialect: f.Config.Dialect, Schema: f.Config.Schema, Table: f.Config.Table,
		PollInterval: time.Millisecond, MaxPollInterval: 10 * time.Millisecond, DrainTimeout: time.Second, UnhandledAfter: -1, AllowCompeting: true,
		Backoff: func(int) time.Duration { return time.Millisecond },
	}
	for _, option := range options {
		option(&config)
	}
	s, err := outbox.NewSubscriber(db, config, logger)
	f.NoError(err)
	f.T.Cleanup(func() {
		if err := s.Close(); err != nil {
			f.T.Errorf("closing the subscriber: %v", err)
		}
	})
	return s
}

// Subscriber is the same on the fixture's own pool.
func (f *Fixture) Subscriber(options ...func(*outbox.SubscriberConfig)) *outbox.Subscriber {
	f.T.Helper()
	return f.SubscriberOn(f.DB.DB, nil, options...)
}

// Subscribe outlives the test's own context: the subscriber's Close ends it.
func (f *Fixture) Subscribe(s *outbox.Subscriber, topic string) <-chan *message.Message {
	f.T.Helper()
	messages, err := s.Subscribe(context.WithoutCancel(f.Context()), topic)
	f.NoError(err)
	return messages
}

// Receive waits for the next message.
func (f *Fixture) Receive(messages <-chan *message.Message) *message.Message {
	f.T.Helper()
	msg, open := Take(f.T, messages, "a message")
	f.True(open, "the channel is closed")
	return msg
}

// ReceiveN waits for n messages without answering any.
func (f *Fixture) ReceiveN(messages <-chan *message.Message, n int) (received []*message.Message) {
	f.T.Helper()
	for range n {
		received = append(received, f.Receive(messages))
	}
	return received
}

// Take waits for a channel.
func Take[V any](t *testing.T, from <-chan V, what string) (value V, open bool) {
	t.Helper()
	timer := time.NewTimer(Patience)
	defer timer.Stop()
	select {
	case value, open = <-from:
	case <-timer.C:
		t.Fatal("waited in vain for " + what)
	}
	return value, open
}

// Delivery is the attempt that a message stands for.
func (f *Fixture) Delivery(msg *message.Message) *outbox.Delivery {
	f.T.Helper()
	d, ok := outbox.DeliveryFrom(msg.Context())
	f.True(ok)
	return d
}

// Becomes waits until a message has a status. A settlement that the subscriber writes gives the test no other signal.
func (f *Fixture) Becomes(id outbox.MessageID, status outbox.Status) Row {
	f.T.Helper()
	var r Row
	f.Eventually(func() bool {
		r = f.Row(id)
		return r.Status == int(status)
	}, Patience, 2*time.Millisecond, "message %v does not become %v", id, status)
	return r
}

// A LogBook is a logger that remembers.
type LogBook struct {
	fields watermill.LogFields
	Shared *logLines
}

type logLines struct {
	Mu    sync.Mutex
	Lines []LogLine
	more  chan struct{} // closed and replaced with each line
}

// A LogLine is one of a LogBook.
type LogLine struct {
	Level, text string
	Err         error
	Fields      watermill.LogFields
}

// String shows all of a line.
func (l LogLine) String() string { return fmt.Sprintf("%s %s %v %v", l.Level, l.text, l.Err, l.Fields) }

// NewLogBook is an empty one.
func NewLogBook() *LogBook { return &LogBook{Shared: &logLines{more: make(chan struct{})}} }

func (b *LogBook) add(level, text string, err error, fields watermill.LogFields) {
	b.Shared.Mu.Lock()
	defer b.Shared.Mu.Unlock()
	b.Shared.Lines = append(b.Shared.Lines, LogLine{level, text, err, b.fields.Add(fields)})
	close(b.Shared.more)
	b.Shared.more = make(chan struct{})
}

// Error is of watermill.LoggerAdapter.
func (b *LogBook) Error(msg string, err error, fields watermill.LogFields) {
	b.add("ERROR", msg, err, fields)
}

// Info is of watermill.LoggerAdapter.
func (b *LogBook) Info(msg string, fields watermill.LogFields) { b.add("INFO", msg, nil, fields) }

// Debug is of watermill.LoggerAdapter.
func (b *LogBook) Debug(msg string, fields watermill.LogFields) { b.add("DEBUG", msg, nil, fields) }

// Trace is of watermill.LoggerAdapter.
func (b *LogBook) Trace(msg string, fields watermill.LogFields) { b.add("TRACE", msg, nil, fields) }

// With is of watermill.LoggerAdapter.
func (b *LogBook) With(fields watermill.LogFields) watermill.LoggerAdapter {
	return &LogBook{b.fields.Add(fields), b.Shared}
}

// Lines are all so far.
func (b *LogBook) Lines() []LogLine {
	b.Shared.Mu.Lock()
	defer b.Shared.Mu.Unlock()
	return append([]LogLine(nil), b.Shared.Lines...)
}

// At are the lines of a level whose text contains a word.
func (b *LogBook) At(level, word string) (found []LogLine) {
	for _, line := range b.Lines() {
		if line.Level == level && strings.Contains(line.text, word) {
			found = append(found, line)
		}
	}
	return found
}

// Await waits for such a line and returns the first.
func (f *Fixture) Await(b *LogBook, level, word string) LogLine {
	f.T.Helper()
	timer := time.NewTimer(Patience)
	defer timer.Stop()
	for {
		b.Shared.Mu.Lock()
		more := b.Shared.more
		b.Shared.Mu.Unlock()
		if found := b.At(level, word); len(found) > 0 {
			return found[0]
		}
		select {
		case <-more:
		case <-timer.C:
			f.FailNow(fmt.Sprintf("no %s line with %q in %v", level, word, b.Lines()))
		}
	}
}

// DeliveryOf is the attempt that a message stands for.
func DeliveryOf(msg *message.Message) *outbox.Delivery {
	delivery, ok := outbox.DeliveryFrom(msg.Context())
	if !ok {
		fmt.Fprintln(os.Stderr, "kill worker: a message without a delivery")
		os.Exit(1)
	}
	return delivery
}

// Tick is how often a test looks for what gives no signal.
const Tick = 2 * time.Millisecond

// Route runs a Watermill router with Outcome first until the test ends.
func (f *Fixture) Route(s message.Subscriber, logger watermill.LoggerAdapter, handle message.NoPublishHandlerFunc) {
	f.T.Helper()
	if logger == nil {
		logger = watermill.NopLogger{}
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: Patience}, logger)
	f.NoError(err)
	router.AddMiddleware(middleware.Outcome)
	router.AddConsumerHandler("orders", "orders", s, handle)
	stopped := make(chan error, 1)
	go func() { stopped <- router.Run(context.WithoutCancel(f.Context())) }()
	Take(f.T, router.Running(), "the router")
	f.T.Cleanup(func() {
		if err := errors.Join(router.Close(), <-stopped); err != nil {
			f.T.Errorf("closing the router: %v", err)
		}
	})
}

// AckAll acks messages.
func AckAll(messages []*message.Message) {
	for _, msg := range messages {
		msg.Ack()
	}
}

// Settles waits until all are done.
func (f *Fixture) Settles(ids []outbox.MessageID) {
	f.T.Helper()
	for _, id := range ids {
		f.Becomes(id, outbox.Done)
	}
}

// LeaseOf configures a lease.
func LeaseOf(lease time.Duration) func(*outbox.SubscriberConfig) {
	return func(c *outbox.SubscriberConfig) { c.LeaseDuration = lease }
}

// Retained has one message that a short Retention does not keep, and returns those that it does.
func (f *Fixture) Retained() (left []string) {
	f.T.Helper()
	for _, state := range []string{"done", "failed", "just done", "ready"} {
		f.Enqueue(outbox.Message{Topic: state, UUID: state})
	}
	f.Settle(Settled(outbox.Ack, f.Claim("done", "just done")...)...)
	f.Settle(Settled(outbox.Fail, f.Claim("failed")...)...)
	f.Exec("UPDATE {outbox} SET {created_at} = {past}")
	f.ExecStates("UPDATE {outbox_state} SET {processed_at} = {past} WHERE {status} >= 2")
	f.ExecStates("UPDATE {outbox_state} SET {processed_at} = {future} WHERE {seq} IN (SELECT {seq} FROM {all} WHERE {uuid} = 'just done')")
	return []string{"failed", "just done", "ready"}
}

// UUIDs are those of all messages, in the order of publishing.
func (f *Fixture) UUIDs() []string {
	f.T.Helper()
	uuids, err := f.Strings(f.DB, f.SQL("SELECT {uuid} FROM {all}"))
	f.NoError(err)
	return uuids
}
