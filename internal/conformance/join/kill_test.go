package join_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/internal/testprocess"
)

// killPlan is the size of the kill test.
type killPlan struct {
	messages, workers, kills int
	patience                 time.Duration // without any news
}

// newKillPlan is small in the normal suite, and full where OUTBOX_TEST_KILL says so.
func newKillPlan() killPlan {
	if os.Getenv("OUTBOX_TEST_KILL") == "full" {
		return killPlan{messages: 10_000, workers: 3, kills: 20, patience: time.Minute}
	}
	return killPlan{messages: 500, workers: 3, kills: 3, patience: time.Minute}
}

// TestLong_KilledWorkersLoseNothing kills worker processes while they hold claimed messages. Everything is delivered
// nevertheless, by whoever is left, without anybody calling anything.
func TestLong_KilledWorkersLoseNothing(t *testing.T) {
	plan, seed := newKillPlan(), testprocess.Seed(t)
	t.Logf("OUTBOX_TEST_KILL_SEED=%d", seed)
	forEach(t, func(t *testing.T, f *fixture) {
		r := &killRun{fixture: f, killPlan: plan, random: rand.New(rand.NewPCG(seed, 0)), lines: make(chan testprocess.Line), handled: map[int]int{}}
		f.Exec("CREATE TABLE %s (id INT NOT NULL, worker INT NOT NULL)", r.table())
		r.messages = 0
		r.more = func() {
			messages := make([]outbox.Message, plan.messages)
			for i := range messages {
				messages[i] = outbox.Message{UUID: fmt.Sprint(r.messages), Topic: "work"}
				r.messages++
			}
			f.Enqueue(messages...)
		}
		started := time.Now()
		r.run()
		r.check()
		t.Logf("seed %d: %d messages, %d kills of %d workers, which held %v messages; at most %d attempts, %d delivered again, %v",
			seed, r.messages, len(r.held), plan.workers, r.held, r.attempts, r.duplicates, time.Since(started).Round(time.Millisecond))
	})
}

// A killRun starts workers, kills them and starts others, until every message is done.
type killRun struct {
	*fixture
	killPlan
	random *rand.Rand
	joins  joinJob // zero without joins
	more   func()  // publishes; their UUIDs are 0, 1, 2 …

	workers []*killWorker // that are alive
	started []*killWorker // the dead, too
	lines   chan testprocess.Line
	handled map[int]int // how often, by message; told before the ack
	held    []int       // by kill, the messages that were in progress in the name of the dead worker

	settled bool // something was, since it was last asked what is left

	attempts, duplicates int
}

func (r *killRun) table() string {
	return r.Config.Dialect.Quote(r.Schema()) + "." + r.Config.Dialect.Quote("kill_handled")
}

// lease is short, but long enough that only the dead lose theirs: an attempt more is then a kill. A SQL Server may take
// seconds for the first statements of a connection.
func (r *killRun) lease() time.Duration {
	if r.kills == 0 {
		return time.Minute
	}
	if r.DB.Name == testdb.SQLServer {
		return 5 * time.Second
	}
	return time.Second
}

func (r *killRun) run() {
	r.more()
	for range r.killPlan.workers {
		r.start()
	}
	thresholds := r.thresholds()
	for {
		if news := r.next(); news.event == killHandled {
			r.handled[news.message]++
		}
		if len(r.held) < r.kills && len(r.handled) >= thresholds[len(r.held)] {
			r.kill()
		}
		if !r.settled || len(r.handled) < r.messages {
			continue
		}
		if r.settled = false; r.left() > 0 {
			continue
		}
		if len(r.held) == r.kills {
			r.stop()
			return
		}
		r.more() // on a busy machine workers may be done before it is known what they have begun
	}
}

// left is how many messages are not done. What follows joins is for nobody.
func (r *killRun) left() int {
	r.T.Helper()
	return int(r.Number("SELECT COUNT(*) FROM {all} WHERE {status} IN (0, 1) AND {topic} NOT LIKE 'next %%'"))
}

// thresholds say after how many messages the next worker is killed. The last tenth is left to finish in peace.
func (r *killRun) thresholds() []int {
	thresholds := make([]int, r.kills)
	for i := range thresholds {
		thresholds[i] = r.random.IntN(r.messages * 9 / 10)
	}
	slices.Sort(thresholds)
	return thresholds
}

// kill kills a worker that has handled something and has more in its hands, and starts another. It counts only if the
// table says that the dead worker holds messages.
func (r *killRun) kill() {
	r.T.Helper()
	var busy []*killWorker
	for _, w := range r.workers {
		if w.handled > 0 && w.taken > w.handled {
			busy = append(busy, w)
		}
	}
	if len(busy) == 0 {
		return
	}
	victim := busy[r.random.IntN(len(busy))]
	r.NoError(victim.Kill())
	r.workers = slices.DeleteFunc(r.workers, func(w *killWorker) bool { return w == victim })
	for news := range r.all() {
		if news.event == killHandled {
			r.handled[news.message]++
		}
		if news.event == killEnded && news.worker == victim {
			break
		}
	}
	owners := make([]string, 0, len(victim.owners))
	for owner := range victim.owners {
		owners = append(owners, "'"+owner.String()+"'")
	}
	held := r.Number("SELECT COUNT(*) FROM {all} WHERE {status} = 1 AND {owner_token} IN (%s)", strings.Join(owners, ", "))
	if held > 0 {
		r.held = append(r.held, int(held))
	}
	r.start()
}

// all is what the workers tell from now on.
func (r *killRun) all() func(yield func(killNews) bool) {
	return func(yield func(killNews) bool) {
		for yield(r.next()) {
			continue
		}
	}
}

// next waits for news of any worker. That one has ended is an error, unless it was killed.
func (r *killRun) next() killNews {
	r.T.Helper()
	timer := time.NewTimer(r.patience)
	defer timer.Stop()
	select {
	case line := <-r.lines:
		news := r.read(line)
		w := news.worker
		switch news.event {
		case killTaken:
			w.taken++
			w.owners[news.owner] = struct{}{}
		case killHandled:
			w.handled++
		case killContinued:
			w.handled++
			r.settled = true
		case killSettled:
			r.settled = true
		case killEnded:
			if slices.Contains(r.workers, w) {
				r.FailNow("a worker ended by itself", "%v", w.State())
			}
		}
		return news
	case <-timer.C:
		r.FailNow("no news of any worker", "for %v; handled: %d of %d, kills: %d", r.patience, len(r.handled), r.messages, len(r.held))
		panic("not reached")
	}
}

// stop lets the workers that are left finish. Nothing is left to do for them.
func (r *killRun) stop() {
	r.T.Helper()
	workers := r.workers
	r.workers = nil
	for _, w := range workers {
		r.NoError(w.Stdin.Close())
	}
	for ended := 0; ended < len(workers); {
		if r.next().event == killEnded {
			ended++
		}
	}
	for _, w := range workers {
		r.True(w.State().Success(), "a worker ended with %v", w.State())
	}
}

// check asks the table, not the workers.
func (r *killRun) check() {
	r.T.Helper()
	r.Equal(r.messages, int(r.Number("SELECT COUNT(*) FROM {all} WHERE {status} = %d", outbox.Done)), "messages that are done")
	r.Equal(r.messages, int(r.Number("SELECT COUNT(DISTINCT id) FROM %s", r.table())), "messages that handlers have seen")
	r.duplicates = int(r.Number("SELECT COUNT(*) FROM %s", r.table())) - r.messages
	r.attempts = int(r.Number("SELECT MAX({retry_count}) FROM {all}")) + 1
	r.LessOrEqual(r.attempts, len(r.held)+1, fmt.Sprintf("attempts after %d kills", len(r.held)))
}
