package conformance

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
)

// Patience is how long a test waits for what has to happen.
const Patience = 2 * time.Minute

// SubscriberOn returns a subscriber that polls quickly and is closed when the test ends.
func (f *fixture) SubscriberOn(db *sql.DB, logger watermill.LoggerAdapter, options ...func(*outbox.SubscriberConfig)) *outbox.Subscriber {
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

func (f *fixture) Subscriber(options ...func(*outbox.SubscriberConfig)) *outbox.Subscriber {
	f.T.Helper()
	return f.SubscriberOn(f.DB.DB, nil, options...)
}

// Subscribe outlives the test's own context: the subscriber's Close ends it.
func (f *fixture) Subscribe(s *outbox.Subscriber, topic string) <-chan *message.Message {
	f.T.Helper()
	messages, err := s.Subscribe(context.WithoutCancel(f.Context()), topic)
	f.NoError(err)
	return messages
}

// Receive waits for the next message.
func (f *fixture) Receive(messages <-chan *message.Message) *message.Message {
	f.T.Helper()
	msg, open := Take(f, messages, "a message")
	f.True(open, "the channel is closed")
	return msg
}

// ReceiveN waits for n messages without answering any.
func (f *fixture) ReceiveN(messages <-chan *message.Message, n int) (received []*message.Message) {
	f.T.Helper()
	for range n {
		received = append(received, f.Receive(messages))
	}
	return received
}

// Take waits for a channel.
func Take[T any](f *fixture, from <-chan T, what string) (value T, open bool) {
	f.T.Helper()
	timer := time.NewTimer(Patience)
	defer timer.Stop()
	select {
	case value, open = <-from:
	case <-timer.C:
		f.FailNow("waited in vain for " + what)
	}
	return value, open
}

// Delivery is the attempt that a message stands for.
func (f *fixture) Delivery(msg *message.Message) *outbox.Delivery {
	f.T.Helper()
	d, ok := outbox.DeliveryFrom(msg.Context())
	f.True(ok)
	return d
}

// Becomes waits until a message has a status. A settlement that the subscriber writes gives the test no other signal.
func (f *fixture) Becomes(id outbox.MessageID, status outbox.Status) Row {
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

type LogLine struct {
	Level, text string
	Err         error
	Fields      watermill.LogFields
}

func (l LogLine) String() string { return fmt.Sprintf("%s %s %v %v", l.Level, l.text, l.Err, l.Fields) }

func NewLogBook() *LogBook { return &LogBook{Shared: &logLines{more: make(chan struct{})}} }

func (b *LogBook) add(level, text string, err error, fields watermill.LogFields) {
	b.Shared.Mu.Lock()
	defer b.Shared.Mu.Unlock()
	b.Shared.Lines = append(b.Shared.Lines, LogLine{level, text, err, b.fields.Add(fields)})
	close(b.Shared.more)
	b.Shared.more = make(chan struct{})
}

func (b *LogBook) Error(msg string, err error, fields watermill.LogFields) {
	b.add("ERROR", msg, err, fields)
}
func (b *LogBook) Info(msg string, fields watermill.LogFields)  { b.add("INFO", msg, nil, fields) }
func (b *LogBook) Debug(msg string, fields watermill.LogFields) { b.add("DEBUG", msg, nil, fields) }
func (b *LogBook) Trace(msg string, fields watermill.LogFields) { b.add("TRACE", msg, nil, fields) }
func (b *LogBook) With(fields watermill.LogFields) watermill.LoggerAdapter {
	return &LogBook{b.fields.Add(fields), b.Shared}
}

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
func (f *fixture) Await(b *LogBook, level, word string) LogLine {
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
