package suite

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
	"github.com/incursa/watermill-outbox/internal/seam"
	"github.com/incursa/watermill-outbox/internal/testdb"
)

// NewDispatcher returns a dispatcher that polls quickly, and does not run it.
func (f *Fixture) NewDispatcher(db *sql.DB, logger watermill.LoggerAdapter, policies []fanout.Policy, options ...func(*fanout.Config)) (*fanout.Dispatcher, error) {
	config := fanout.Config{
		Dialect: f.Config.Dialect, Schema: f.Config.Schema, Table: f.Config.Table, Policies: policies,
		PollInterval: time.Millisecond, MaxPollInterval: 20 * time.Millisecond, RetryMin: time.Millisecond, RetryMax: 20 * time.Millisecond,
	}
	for _, option := range options {
		option(&config)
	}
	return fanout.NewDispatcher(db, config, logger)
}

// Dispatch runs a dispatcher until the test ends, or stop is called, which may be done again.
func (f *Fixture) Dispatch(logger watermill.LoggerAdapter, policies []fanout.Policy, options ...func(*fanout.Config)) (stop func()) {
	f.T.Helper()
	return f.DispatchOn(f.DB.DB, logger, policies, options...)
}

// DispatchOn is the same on another pool.
func (f *Fixture) DispatchOn(db *sql.DB, logger watermill.LoggerAdapter, policies []fanout.Policy, options ...func(*fanout.Config)) (stop func()) {
	f.T.Helper()
	d, err := f.NewDispatcher(db, logger, policies, options...)
	f.NoError(err)
	var running sync.WaitGroup
	running.Go(func() {
		if err := d.Run(context.Background()); err != nil {
			f.T.Errorf("the dispatcher: %v", err)
		}
	})
	Take(f.T, d.Running(), "the dispatcher")
	stop = func() {
		if err := d.Close(); err != nil {
			f.T.Errorf("closing the dispatcher: %v", err)
		}
		running.Wait()
	}
	f.T.Cleanup(stop)
	return stop
}

// ToTopics is a policy for everything, to topics of the same outbox.
func ToTopics(name string, topics ...string) fanout.Policy {
	p := fanout.Policy{Name: name}
	for _, topic := range topics {
		p.Destinations = append(p.Destinations, fanout.ToTopic(topic))
	}
	return p
}

// LogTable is a table of the log: "" for the log itself, "group", "counter" or "dead".
func (f *Fixture) LogTable(name string) string {
	suffixes := map[string]string{"": "_log", "group": "_log_group", "counter": "_log_counter", "dead": "_log_dead"}
	if f.DB.Name == testdb.SQLServer {
		suffixes = map[string]string{"": "_Log", "group": "_Log_Group", "counter": "_Log_Counter", "dead": "_Log_Dead"}
	}
	return f.Object(f.Config.Dialect.Traits().Table + suffixes[name])
}

// Passed is the position of a policy's cursor, 0 if it has none.
func (f *Fixture) Passed(policy string) int64 {
	f.T.Helper()
	return f.Number("SELECT COALESCE(MAX({position}), 0) FROM %s WHERE {group_name} = 'fanout:%s' AND {topic} = ''", f.LogTable("group"), policy)
}

// LastPosition is the last that was given.
func (f *Fixture) LastPosition() int64 {
	f.T.Helper()
	return f.Number("SELECT MAX({position}) FROM %s", f.LogTable("counter"))
}

// HasPassed waits until a policy has passed all that is logged.
func (f *Fixture) HasPassed(policy string, logged int) {
	f.T.Helper()
	f.Eventually(func() bool { return f.LastPosition() == int64(logged) && f.Passed(policy) == int64(logged) }, Patience, 2*time.Millisecond,
		"the policy %q does not pass %d", policy, logged)
}

// Stamped waits until n messages have their positions.
func (f *Fixture) Stamped(n int) {
	f.T.Helper()
	f.Eventually(func() bool { return f.LastPosition() == int64(n) }, Patience, 2*time.Millisecond)
}

// UUIDsOf are the UUIDs of the messages of a topic, in the order in which they were inserted.
func (f *Fixture) UUIDsOf(topic string) []string {
	f.T.Helper()
	uuids, err := f.Strings(f.DB, f.SQL("SELECT {uuid} FROM {all} WHERE {topic} = '%s' ORDER BY {seq}", topic))
	f.NoError(err)
	return uuids
}

// Numbered are the texts from, from+1 … to-1.
func Numbered(from, to int) (texts []string) {
	for i := from; i < to; i++ {
		texts = append(texts, fmt.Sprint(i))
	}
	return texts
}

// A Recorder is a publisher that remembers, and fails while it is told to.
type Recorder struct {
	mu       sync.Mutex
	failure  error
	messages []*message.Message
	topics   []string
	more     chan struct{} // closed and replaced with each call
}

// NewRecorder returns one that does not fail.
func NewRecorder() *Recorder { return &Recorder{more: make(chan struct{})} }

// Publish is of message.Publisher.
func (r *Recorder) Publish(topic string, messages ...*message.Message) error {
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

// Close is of message.Publisher.
func (r *Recorder) Close() error { return nil }

// Fail has calls fail with an error, or not if it is nil.
func (r *Recorder) Fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failure = err
}

// Taken are the messages so far, also of calls that failed.
func (r *Recorder) Taken() []*message.Message {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]*message.Message(nil), r.messages...)
}

// UUIDs are those of the messages so far.
func (r *Recorder) UUIDs() (uuids []string) {
	for _, msg := range r.Taken() {
		uuids = append(uuids, msg.UUID)
	}
	return uuids
}

// Has waits for n messages.
func (f *Fixture) Has(r *Recorder, n int) {
	f.T.Helper()
	timer := time.NewTimer(Patience)
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

// LogN writes messages with the UUIDs from … to-1 to the log alone.
func (f *Fixture) LogN(topic string, from, to int) {
	f.T.Helper()
	var messages []outbox.Message
	for _, uuid := range Numbered(from, to) {
		messages = append(messages, outbox.Message{UUID: uuid, Topic: topic, Payload: []byte(uuid)})
	}
	_, err := f.LogOutbox().Enqueue(f.Context(), f.DB.DB, messages...)
	f.NoError(err)
}

// GroupSubscriber reads the log for a group.
func (f *Fixture) GroupSubscriber(db *sql.DB, group string, logger *LogBook, options ...func(*outbox.SubscriberConfig)) *outbox.Subscriber {
	f.T.Helper()
	if logger == nil {
		logger = NewLogBook()
	}
	return f.SubscriberOn(db, logger, append([]func(*outbox.SubscriberConfig){func(c *outbox.SubscriberConfig) { c.ConsumerGroup = group }}, options...)...)
}

// Stamp gives positions to all that is committed.
func (f *Fixture) Stamp() {
	f.T.Helper()
	f.StampOn(f.DB.DB)
}

// StampOn is the same on another pool.
func (f *Fixture) StampOn(db *sql.DB) {
	f.T.Helper()
	s, err := outbox.NewSequencer(db, outbox.SequencerConfig{Dialect: f.Config.Dialect, Schema: f.Config.Schema, Table: f.Config.Table}, nil)
	f.NoError(err)
	for {
		n, err := seam.Sequencer(s).Stamp(f.Context())
		f.NoError(err)
		if n == 0 {
			return
		}
	}
}

// StampIn gives positions in a transaction, whose end decides on them.
func StampIn(ctx context.Context, o *outbox.Outbox, tx *sql.Tx) error {
	return seam.Outbox(o).Run(ctx, tx, "outbox_log_stamp", map[string]int{"limit": 1000}, func(rows *sql.Rows) error {
		var topic string
		var n int
		return rows.Scan(&topic, &n)
	})
}

// LogOutbox writes to the log alone.
func (f *Fixture) LogOutbox() *outbox.Outbox {
	return f.NewOutbox(f.DB.DB, func(c *outbox.Config) { c.Log = outbox.LogOnly })
}

// EnqueueLogged publishes messages with these UUIDs.
func (f *Fixture) EnqueueLogged(o *outbox.Outbox, topic string, uuids ...string) {
	f.T.Helper()
	for _, uuid := range uuids {
		_, err := o.Enqueue(context.Background(), f.DB.DB, outbox.Message{UUID: uuid, Topic: topic})
		f.NoError(err)
	}
}

// Sequencer runs one until the test ends.
func (f *Fixture) Sequencer() {
	f.T.Helper()
	s, err := outbox.NewSequencer(f.DB.DB, outbox.SequencerConfig{
		Dialect: f.Config.Dialect, Schema: f.Config.Schema, Table: f.Config.Table,
		PollInterval: time.Millisecond, MaxPollInterval: 10 * time.Millisecond}, nil)
	f.NoError(err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.Run(ctx); err != nil {
			f.T.Errorf("the sequencer: %v", err)
		}
	})
	f.T.Cleanup(func() {
		cancel()
		running.Wait()
	})
}
