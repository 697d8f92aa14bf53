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

// patience is how long a test waits for what has to happen.
const patience = 2 * time.Minute

// subscriberOn returns a subscriber that polls quickly and is closed when the test ends.
func (f *fixture) subscriberOn(db *sql.DB, logger watermill.LoggerAdapter, options ...func(*outbox.SubscriberConfig)) *outbox.Subscriber {
	f.t.Helper()
	config := outbox.SubscriberConfig{
		Dialect: f.config.Dialect, Schema: f.config.Schema, Table: f.config.Table,
		PollInterval: time.Millisecond, MaxPollInterval: 10 * time.Millisecond, DrainTimeout: time.Second, UnhandledAfter: -1, AllowCompeting: true,
		Backoff: func(int) time.Duration { return time.Millisecond },
	}
	for _, option := range options {
		option(&config)
	}
	s, err := outbox.NewSubscriber(db, config, logger)
	f.NoError(err)
	f.t.Cleanup(func() {
		if err := s.Close(); err != nil {
			f.t.Errorf("closing the subscriber: %v", err)
		}
	})
	return s
}

func (f *fixture) subscriber(options ...func(*outbox.SubscriberConfig)) *outbox.Subscriber {
	f.t.Helper()
	return f.subscriberOn(f.db.DB, nil, options...)
}

// subscribe outlives the test's own context: the subscriber's Close ends it.
func (f *fixture) subscribe(s *outbox.Subscriber, topic string) <-chan *message.Message {
	f.t.Helper()
	messages, err := s.Subscribe(context.WithoutCancel(f.ctx()), topic)
	f.NoError(err)
	return messages
}

// receive waits for the next message.
func (f *fixture) receive(messages <-chan *message.Message) *message.Message {
	f.t.Helper()
	msg, open := take(f, messages, "a message")
	f.True(open, "the channel is closed")
	return msg
}

// receiveN waits for n messages without answering any.
func (f *fixture) receiveN(messages <-chan *message.Message, n int) (received []*message.Message) {
	f.t.Helper()
	for range n {
		received = append(received, f.receive(messages))
	}
	return received
}

// take waits for a channel.
func take[T any](f *fixture, from <-chan T, what string) (value T, open bool) {
	f.t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case value, open = <-from:
	case <-timer.C:
		f.FailNow("waited in vain for " + what)
	}
	return value, open
}

// delivery is the attempt that a message stands for.
func (f *fixture) delivery(msg *message.Message) *outbox.Delivery {
	f.t.Helper()
	d, ok := outbox.DeliveryFrom(msg.Context())
	f.True(ok)
	return d
}

// becomes waits until a message has a status. A settlement that the subscriber writes gives the test no other signal.
func (f *fixture) becomes(id outbox.MessageID, status outbox.Status) row {
	f.t.Helper()
	var r row
	f.Eventually(func() bool {
		r = f.row(id)
		return r.status == int(status)
	}, patience, 2*time.Millisecond, "message %v does not become %v", id, status)
	return r
}

// A logBook is a logger that remembers.
type logBook struct {
	fields watermill.LogFields
	shared *logLines
}

type logLines struct {
	mu    sync.Mutex
	lines []logLine
	more  chan struct{} // closed and replaced with each line
}

type logLine struct {
	level, text string
	err         error
	fields      watermill.LogFields
}

func (l logLine) String() string { return fmt.Sprintf("%s %s %v %v", l.level, l.text, l.err, l.fields) }

func newLogBook() *logBook { return &logBook{shared: &logLines{more: make(chan struct{})}} }

func (b *logBook) add(level, text string, err error, fields watermill.LogFields) {
	b.shared.mu.Lock()
	defer b.shared.mu.Unlock()
	b.shared.lines = append(b.shared.lines, logLine{level, text, err, b.fields.Add(fields)})
	close(b.shared.more)
	b.shared.more = make(chan struct{})
}

func (b *logBook) Error(msg string, err error, fields watermill.LogFields) {
	b.add("ERROR", msg, err, fields)
}
func (b *logBook) Info(msg string, fields watermill.LogFields)  { b.add("INFO", msg, nil, fields) }
func (b *logBook) Debug(msg string, fields watermill.LogFields) { b.add("DEBUG", msg, nil, fields) }
func (b *logBook) Trace(msg string, fields watermill.LogFields) { b.add("TRACE", msg, nil, fields) }
func (b *logBook) With(fields watermill.LogFields) watermill.LoggerAdapter {
	return &logBook{b.fields.Add(fields), b.shared}
}

func (b *logBook) lines() []logLine {
	b.shared.mu.Lock()
	defer b.shared.mu.Unlock()
	return append([]logLine(nil), b.shared.lines...)
}

// at are the lines of a level whose text contains a word.
func (b *logBook) at(level, word string) (found []logLine) {
	for _, line := range b.lines() {
		if line.level == level && strings.Contains(line.text, word) {
			found = append(found, line)
		}
	}
	return found
}

// await waits for such a line and returns the first.
func (f *fixture) await(b *logBook, level, word string) logLine {
	f.t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		b.shared.mu.Lock()
		more := b.shared.more
		b.shared.mu.Unlock()
		if found := b.at(level, word); len(found) > 0 {
			return found[0]
		}
		select {
		case <-more:
		case <-timer.C:
			f.FailNow(fmt.Sprintf("no %s line with %q in %v", level, word, b.lines()))
		}
	}
}
