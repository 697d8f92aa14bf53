package join_test

import (
	"fmt"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/admin"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/testprocess"
)

// pauseReaches is how soon every process must have stopped.
const pauseReaches = time.Second

// Pause reaches four worker processes, those of kill_test.go, within a second: from then on none of them claims, although there
// is work and they go on polling. After Resume everything is handled, and nothing is lost.
func TestPauseReachesEveryWorkerProcess(t *testing.T) {
	const batch = 500
	forEach(t, func(t *testing.T, f *fixture) {
		a, err := admin.New(f.Outbox)
		f.NoError(err)
		r := &killRun{fixture: f, killPlan: killPlan{workers: 4, patience: time.Minute}, lines: make(chan testprocess.Line, 100_000), handled: map[int]int{}}
		f.Exec("CREATE TABLE %s (id INT NOT NULL, worker INT NOT NULL)", r.table())
		r.messages = 0
		more := func(topic string) {
			messages := make([]outbox.Message, batch)
			for i := range messages {
				messages[i] = outbox.Message{UUID: fmt.Sprint(r.messages), Topic: topic}
				r.messages++
			}
			f.Enqueue(messages...)
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
		ready := func() int64 { return f.Number("SELECT COUNT(*) FROM {all} WHERE {status} = 0") }
		var waiting int64
		for { // until they are stopped in the middle: on a busy machine a pause may come when everything is handled
			more("work")
			f.NoError(a.Pause(f.Context(), admin.PauseParams{Topic: "work"}))
			paused := time.Now()
			f.Eventually(func() bool { return time.Since(paused) >= pauseReaches }, suite.Patience, 10*time.Millisecond)
			if waiting = ready(); waiting > 0 {
				break
			}
			f.NoError(a.Resume(f.Context(), admin.ResumeParams{Topic: "work"}))
		}
		more("work")
		f.Never(func() bool { return ready() != waiting+batch }, 2*time.Second, 50*time.Millisecond, "a worker claims from a paused topic")
		f.Eventually(func() bool { return f.Number("SELECT COUNT(*) FROM {all} WHERE {status} = 1") == 0 }, suite.Patience, 10*time.Millisecond)

		f.NoError(a.Resume(f.Context(), admin.ResumeParams{Topic: "work"}))
		resumed := time.Now()
		f.Eventually(func() bool { return ready() < waiting+batch }, suite.Patience, 10*time.Millisecond)
		t.Logf("%d messages waited; the first was claimed %v after Resume", waiting+batch, time.Since(resumed).Round(time.Millisecond))
		f.Eventually(func() bool { return r.left() == 0 }, suite.Patience, 10*time.Millisecond)
		r.stop()
		r.check()
		f.Zero(r.duplicates)
	})
}
