package conformance

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/admin"
	"github.com/incursa/watermill-outbox/internal/seam"
	"github.com/incursa/watermill-outbox/internal/testprocess"
)

func (f *fixture) admin() *admin.Admin {
	f.t.Helper()
	a, err := admin.New(f.outbox)
	f.NoError(err)
	return a
}

func (f *fixture) pause(topic string) {
	f.t.Helper()
	f.NoError(f.admin().Pause(f.ctx(), admin.PauseParams{Topic: topic}))
}

// act runs an operation of package admin.
func (c *counted) act(op string, arg any) error {
	return seam.Outbox(c.outbox).Run(c.ctx(), c.x, op, arg, func(*sql.Rows) error { return nil })
}

// pauseReaches is how soon every process must have stopped.
const pauseReaches = time.Second

// Pause reaches four worker processes within a second: from then on none of them claims, although there is work and they go
// on polling. After Resume everything is handled, and nothing is lost.
func TestPauseReachesEveryWorkerProcess(t *testing.T) {
	const batch = 500
	forEach(t, func(t *testing.T, f *fixture) {
		r := &killRun{fixture: f, killPlan: killPlan{workers: 4, patience: time.Minute}, lines: make(chan testprocess.Line, 100_000), handled: map[int]int{}}
		f.exec("CREATE TABLE %s (id INT NOT NULL, worker INT NOT NULL)", r.table())
		r.messages = 0
		more := func(topic string) {
			messages := make([]outbox.Message, batch)
			for i := range messages {
				messages[i] = outbox.Message{UUID: fmt.Sprint(r.messages), Topic: topic}
				r.messages++
			}
			f.enqueue(messages...)
		}
		for range r.killPlan.workers {
			r.start()
		}
		for working := 0; working < r.killPlan.workers; { // until each has handled something
			if len(r.handled) == r.messages {
				more("work")
			}
			if news := r.next(); news.event == killHandled {
				r.handled[news.message]++
				if news.worker.handled == 1 {
					working++
				}
			}
		}
		more("work")
		f.pause("work")
		paused := time.Now()
		ready := func() int64 { return f.number("SELECT COUNT(*) FROM {all} WHERE {status} = 0") }
		f.Eventually(func() bool { return time.Since(paused) >= pauseReaches }, patience, 10*time.Millisecond)
		waiting := ready()
		f.Positive(waiting, "they were stopped in the middle")
		more("work")
		f.Never(func() bool { return ready() != waiting+batch }, 2*time.Second, 50*time.Millisecond, "a worker claims from a paused topic")
		f.Eventually(func() bool { return f.number("SELECT COUNT(*) FROM {all} WHERE {status} = 1") == 0 }, patience, 10*time.Millisecond)

		f.NoError(f.admin().Resume(f.ctx(), admin.ResumeParams{Topic: "work"}))
		resumed := time.Now()
		f.Eventually(func() bool { return ready() < waiting+batch }, patience, 10*time.Millisecond)
		t.Logf("%d messages waited; the first was claimed %v after Resume", waiting+batch, time.Since(resumed).Round(time.Millisecond))
		f.Eventually(func() bool { return r.left() == 0 }, patience, 10*time.Millisecond)
		r.stop()
		r.check()
		f.Zero(r.duplicates)
	})
}

// A Subscriber does not complain of a paused topic that nobody handles here, and its backlog says who paused it.
func TestAPausedTopicIsNoTrouble(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.enqueue(outbox.Message{Topic: "paused"}, outbox.Message{Topic: "unhandled"})
		f.NoError(f.admin().Pause(f.ctx(), admin.PauseParams{Topic: "paused", By: "alice", Reason: "maintenance"}))
		book, backlog := newLogBook(), make(chan []outbox.TopicBacklog, 1000)
		s := f.subscriberOn(f.db.DB, book, func(c *outbox.SubscriberConfig) {
			c.UnhandledAfter = 5 * time.Millisecond
			c.Hooks.OnBacklog = func(topics []outbox.TopicBacklog) { backlog <- topics }
		})
		f.subscribe(s, "handled")
		f.Equal("unhandled", f.await(book, "ERROR", "without a handler").fields["names"])
		topics, _ := take(f, backlog, "the gauge")
		slices.SortFunc(topics, func(a, b outbox.TopicBacklog) int { return strings.Compare(a.Topic, b.Topic) })
		f.Equal("paused", topics[1].Topic)
		f.Equal("alice maintenance", topics[1].PausedBy+" "+topics[1].PauseReason)
		f.False(topics[1].PausedSince.IsZero())
		f.True(topics[2].PausedSince.IsZero())
		f.NoError(s.Close())
	})
}
