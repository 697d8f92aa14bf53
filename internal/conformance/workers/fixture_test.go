package workers_test

import (
	"database/sql"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/limits"
	"github.com/incursa/watermill-outbox/internal/seam"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
)

// lease is that of the workers here: long enough that none loses one on a busy machine.
const lease = 6 * time.Second

var heartbeat = limits.Heartbeat(lease)

type fixture struct{ *testoutbox.Outbox }

func forEach(t *testing.T, test func(t *testing.T, f fixture)) {
	t.Helper()
	testoutbox.ForEach(t, func(t *testing.T, o *testoutbox.Outbox) { test(t, fixture{o}) })
}

// work starts a worker, and returns it with the messages of the topic.
func (f fixture) work(name string, options ...func(*outbox.SubscriberConfig)) (*outbox.Subscriber, <-chan *message.Message) {
	f.T.Helper()
	return f.workOn(f.DB.DB, name, options...)
}

// workOn is work on another pool.
func (f fixture) workOn(db *sql.DB, name string, options ...func(*outbox.SubscriberConfig)) (*outbox.Subscriber, <-chan *message.Message) {
	f.T.Helper()
	config := f.Subscriber()
	config.WorkerName, config.LeaseDuration = name, lease
	for _, option := range options {
		option(&config)
	}
	sub, err := outbox.NewSubscriber(db, config, nil)
	f.NoError(err)
	f.T.Cleanup(func() { f.NoError(sub.Close()) })
	messages, err := sub.Subscribe(f.T.Context(), "orders")
	f.NoError(err)
	return sub, messages
}

// ordered adds n messages to each of some streams.
func (f fixture) ordered(streams, n int) {
	f.T.Helper()
	var messages []outbox.Message
	for i := range streams * n {
		messages = append(messages, outbox.Message{UUID: fmt.Sprint(i), Topic: "orders", StreamKey: fmt.Sprint(i % streams)})
	}
	for batch := range slices.Chunk(messages, 1000) {
		_, err := f.Outbox.Outbox.Enqueue(f.T.Context(), f.DB.DB, batch...)
		f.NoError(err)
	}
}

// A worker is what the database says of one.
type worker struct {
	number                    int
	name                      string
	started, seen, livesUntil int64
	stopped                   sql.NullInt64
	leases, messages, streams int
	lives                     bool
}

func (f fixture) list() (workers []worker) {
	f.T.Helper()
	arg := map[string]int{"limit": 100, "leases": 100, "sample": 100}
	f.NoError(seam.Outbox(f.Outbox.Outbox).Run(f.T.Context(), f.DB.DB, "outbox_worker_list", arg, func(rows *sql.Rows) error {
		var w worker
		var seen sql.NullInt64
		var now int64
		err := rows.Scan(&w.number, &w.name, &w.started, &seen, &w.livesUntil, &w.stopped, &w.leases, &w.messages, &w.streams, &now)
		w.seen, w.lives = seen.Int64, w.livesUntil > now
		workers = append(workers, w)
		return err
	}))
	slices.SortFunc(workers, func(a, b worker) int { return a.number - b.number })
	return workers
}

func (f fixture) worker(name string) worker {
	f.T.Helper()
	for _, w := range f.list() {
		if w.name == name {
			return w
		}
	}
	return worker{}
}

// beat is a heartbeat of a worker that is not there, and returns what it is told.
func (f fixture) beat(name string, lives time.Duration) (living, lower int) {
	f.T.Helper()
	arg := map[string]any{"worker": name, "live_ms": lives.Milliseconds()}
	f.NoError(seam.Outbox(f.Outbox.Outbox).Run(f.T.Context(), f.DB.DB, "outbox_worker_beat", arg, func(rows *sql.Rows) error {
		return rows.Scan(&living, &lower)
	}))
	return living, lower
}

// receive returns the next message.
func (f fixture) receive(messages <-chan *message.Message) *message.Message {
	f.T.Helper()
	select {
	case msg := <-messages:
		return msg
	case <-time.After(testoutbox.Patience):
		f.FailNow("no message comes")
		return nil
	}
}

func streamOf(msg *message.Message) string {
	d, _ := outbox.DeliveryFrom(msg.Context())
	return d.StreamKey()
}

func (f fixture) eventually(condition func() bool, what string) {
	f.T.Helper()
	f.Eventually(condition, testoutbox.Patience, 5*time.Millisecond, what)
}
