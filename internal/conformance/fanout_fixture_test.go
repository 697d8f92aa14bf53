package conformance

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/fanout"
	"github.com/incursa/watermill-outbox/internal/testdb"
)

// newDispatcher returns a dispatcher that polls quickly, and does not run it.
func (f *fixture) newDispatcher(db *sql.DB, logger watermill.LoggerAdapter, policies []fanout.Policy, options ...func(*fanout.Config)) (*fanout.Dispatcher, error) {
	config := fanout.Config{
		Dialect: f.config.Dialect, Schema: f.config.Schema, Table: f.config.Table, Policies: policies,
		PollInterval: time.Millisecond, MaxPollInterval: 20 * time.Millisecond, RetryMin: time.Millisecond, RetryMax: 20 * time.Millisecond,
	}
	for _, option := range options {
		option(&config)
	}
	return fanout.NewDispatcher(db, config, logger)
}

// dispatch runs a dispatcher until the test ends, or stop is called, which may be done again.
func (f *fixture) dispatch(logger watermill.LoggerAdapter, policies []fanout.Policy, options ...func(*fanout.Config)) (stop func()) {
	f.t.Helper()
	return f.dispatchOn(f.db.DB, logger, policies, options...)
}

func (f *fixture) dispatchOn(db *sql.DB, logger watermill.LoggerAdapter, policies []fanout.Policy, options ...func(*fanout.Config)) (stop func()) {
	f.t.Helper()
	d, err := f.newDispatcher(db, logger, policies, options...)
	f.NoError(err)
	var running sync.WaitGroup
	running.Go(func() {
		if err := d.Run(context.Background()); err != nil {
			f.t.Errorf("the dispatcher: %v", err)
		}
	})
	take(f, d.Running(), "the dispatcher")
	stop = func() {
		if err := d.Close(); err != nil {
			f.t.Errorf("closing the dispatcher: %v", err)
		}
		running.Wait()
	}
	f.t.Cleanup(stop)
	return stop
}

// toTopics is a policy for everything, to topics of the same outbox.
func toTopics(name string, topics ...string) fanout.Policy {
	p := fanout.Policy{Name: name}
	for _, topic := range topics {
		p.Destinations = append(p.Destinations, fanout.ToTopic(topic))
	}
	return p
}

// logTable is a table of the log: "" for the log itself, "group", "counter" or "dead".
func (f *fixture) logTable(name string) string {
	suffixes := map[string]string{"": "_log", "group": "_log_group", "counter": "_log_counter", "dead": "_log_dead"}
	if f.db.Name == testdb.SQLServer {
		suffixes = map[string]string{"": "_Log", "group": "_Log_Group", "counter": "_Log_Counter", "dead": "_Log_Dead"}
	}
	return f.object(f.config.Dialect.Traits().Table + suffixes[name])
}

// passed is the position of a policy's cursor, 0 if it has none.
func (f *fixture) passed(policy string) int64 {
	f.t.Helper()
	return f.number("SELECT COALESCE(MAX({position}), 0) FROM %s WHERE {group_name} = 'fanout:%s' AND {topic} = ''", f.logTable("group"), policy)
}

// lastPosition is the last that was given.
func (f *fixture) lastPosition() int64 {
	f.t.Helper()
	return f.number("SELECT MAX({position}) FROM %s", f.logTable("counter"))
}

// hasPassed waits until a policy has passed all that is logged.
func (f *fixture) hasPassed(policy string, logged int) {
	f.t.Helper()
	f.Eventually(func() bool { return f.lastPosition() == int64(logged) && f.passed(policy) == int64(logged) }, patience, 2*time.Millisecond,
		"the policy %q does not pass %d", policy, logged)
}

// stamped waits until n messages have their positions.
func (f *fixture) stamped(n int) {
	f.t.Helper()
	f.Eventually(func() bool { return f.lastPosition() == int64(n) }, patience, 2*time.Millisecond)
}

// uuidsOf are the UUIDs of the messages of a topic, in the order in which they were inserted.
func (f *fixture) uuidsOf(topic string) []string {
	f.t.Helper()
	uuids, err := f.strings(f.db, f.sql("SELECT {uuid} FROM {all} WHERE {topic} = '%s' ORDER BY {seq}", topic))
	f.NoError(err)
	return uuids
}

// loggedUUIDs are the UUIDs of the log, in its order.
func (f *fixture) loggedUUIDs() []string {
	f.t.Helper()
	uuids, err := f.strings(f.db, f.sql("SELECT o.{uuid} FROM %s l JOIN {outbox} o ON o.{message_id} = l.{message_id} ORDER BY l.{position}", f.logTable("")))
	f.NoError(err)
	return uuids
}

// numbered are the texts from, from+1 … to-1.
func numbered(from, to int) (texts []string) {
	for i := from; i < to; i++ {
		texts = append(texts, fmt.Sprint(i))
	}
	return texts
}

// A recorder is a publisher that remembers, and fails while it is told to.
type recorder struct {
	mu       sync.Mutex
	failure  error
	messages []*message.Message
	topics   []string
	more     chan struct{} // closed and replaced with each call
}

func newRecorder() *recorder { return &recorder{more: make(chan struct{})} }

func (r *recorder) Publish(topic string, messages ...*message.Message) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() {
		close(r.more)
		r.more = make(chan struct{})
	}()
	for _, msg := range messages {
		r.messages, r.topics = append(r.messages, msg), append(r.topics, topic)
	}
	return r.failure
}

func (r *recorder) Close() error { return nil }

func (r *recorder) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failure = err
}

func (r *recorder) taken() []*message.Message {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]*message.Message(nil), r.messages...)
}

func (r *recorder) uuids() (uuids []string) {
	for _, msg := range r.taken() {
		uuids = append(uuids, msg.UUID)
	}
	return uuids
}

// has waits for n messages.
func (f *fixture) has(r *recorder, n int) {
	f.t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		r.mu.Lock()
		got, more := len(r.messages), r.more
		r.mu.Unlock()
		if got >= n {
			return
		}
		select {
		case <-more:
		case <-timer.C:
			f.FailNow(fmt.Sprintf("the publisher has %d messages and not %d", got, n))
		}
	}
}

// logN writes messages with the UUIDs from … to-1 to the log alone.
func (f *fixture) logN(topic string, from, to int) {
	f.t.Helper()
	var messages []outbox.Message
	for _, uuid := range numbered(from, to) {
		messages = append(messages, outbox.Message{UUID: uuid, Topic: topic, Payload: []byte(uuid)})
	}
	_, err := f.logOutbox().Enqueue(f.ctx(), f.db.DB, messages...)
	f.NoError(err)
}
