package conformance

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/internal/testprocess"
)

// streamKillPlan is the size of the test. Its messages are published in several rounds.
type streamKillPlan struct {
	streams, each, rounds, workers, kills int
}

// Worker processes are killed while they hold streams, and handlers fail, now and then for good: each stream is delivered in
// order, with one handler at a time, and to its end.
func TestStream_KilledWorkers(t *testing.T) {
	killStreams(t, streamKillPlan{streams: 10, each: 15, rounds: 2, workers: 2, kills: 1})
}

// The same for longer.
func TestLong_KilledWorkersOfStreams(t *testing.T) {
	killStreams(t, streamKillPlan{streams: 100, each: 20, rounds: 10, workers: 4, kills: 20})
}

func killStreams(t *testing.T, plan streamKillPlan) {
	t.Helper()
	seed := killSeed(t)
	t.Logf("OUTBOX_TEST_KILL_SEED=%d", seed)
	forEach(t, func(t *testing.T, f *fixture) {
		r := &streamKillRun{fixture: f, streamKillPlan: plan, seed: seed, random: rand.New(rand.NewPCG(seed, 0)),
			lines: make(chan testprocess.Line), dead: map[int]bool{}}
		key := map[string]string{testdb.Postgres: "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY", testdb.SQLite: "INTEGER PRIMARY KEY AUTOINCREMENT",
			testdb.SQLServer: "BIGINT IDENTITY PRIMARY KEY"}[f.db.Name]
		f.exec("CREATE TABLE %s (id %s, stream INT NOT NULL, n INT NOT NULL, worker INT NOT NULL, what INT NOT NULL)", r.table(), key)
		started := time.Now()
		r.run()
		r.check()
		t.Logf("seed %d: %d messages of %d streams, %d workers killed, %d streams requeued, %d messages again, %d of them of living workers, %v",
			seed, r.messages(), plan.streams, len(r.dead), r.requeued, r.again, r.lapsed, time.Since(started).Round(time.Millisecond))
	})
}

// A streamKillRun starts workers, kills them and starts others, until every message is done.
type streamKillRun struct {
	*fixture
	streamKillPlan
	seed   uint64
	random *rand.Rand

	workers []*testprocess.Process // that are alive
	started int
	lines   chan testprocess.Line
	handled int
	dead    map[int]bool // by process id

	requeued, again, lapsed int
}

func (r *streamKillRun) messages() int { return r.streams * r.each * r.rounds }

func (r *streamKillRun) table() string {
	return r.config.Dialect.Quote(r.schema()) + "." + r.config.Dialect.Quote("stream_handled")
}

func (r *streamKillRun) start() {
	r.t.Helper()
	r.started++
	job := streamJob{r.db.Name, r.db.DriverName, r.db.DSN, r.config.Schema, r.config.Table, r.table(), r.seed + uint64(r.started)}
	r.workers = append(r.workers, testprocess.Start(r.t, streamWorkerVariable, job, r.lines))
}

func (r *streamKillRun) run() {
	for range r.streamKillPlan.workers {
		r.start()
	}
	for round := range r.rounds {
		r.enqueue(orderedMessages("work", r.streams, round*r.each, (round+1)*r.each)...)
		until := r.messages() * (round + 1) / r.rounds
		kills := r.kills * (round + 1) / r.rounds
		for left := true; left; {
			switch r.next() {
			case streamHandled:
				if r.handled++; len(r.dead) < kills && r.random.IntN(until/(r.kills+1)/2+1) == 0 {
					r.kill()
				}
			case streamFailed:
				r.requeue()
			case "":
				r.requeue()
				left = r.number("SELECT COUNT(*) FROM {outbox_state} WHERE {status} <> %d", outbox.Done) > 0
			}
		}
	}
	r.stop()
}

// requeue lets streams go on that are blocked.
func (r *streamKillRun) requeue() {
	r.t.Helper()
	blocked, err := r.outbox.BlockedStreams(r.ctx(), outbox.ListParams{Limit: 1000})
	r.NoError(err)
	for _, b := range blocked {
		r.NoError(r.outbox.RequeueStream(r.ctx(), b.Topic, b.StreamKey))
		r.requeued++
	}
}

// kill kills a worker, and starts another.
func (r *streamKillRun) kill() {
	r.t.Helper()
	victim := r.workers[r.random.IntN(len(r.workers))]
	r.NoError(victim.Kill())
	r.workers = slices.DeleteFunc(r.workers, func(w *testprocess.Process) bool { return w == victim })
	for ended := false; !ended; {
		line, _ := take(r.fixture, r.lines, "the end of a worker")
		ended = line.From == victim && line.Text == ""
		if line.Text == streamHandled {
			r.handled++
		}
	}
	r.dead[victim.State().Pid()] = true
	r.start()
}

// next is what a worker tells, or nothing for a while.
func (r *streamKillRun) next() string {
	r.t.Helper()
	timer := time.NewTimer(200 * time.Millisecond)
	defer timer.Stop()
	select {
	case line := <-r.lines:
		if line.Text == "" {
			r.FailNow("a worker ended by itself", "%v", line.From.State())
		}
		return line.Text
	case <-timer.C:
		return ""
	}
}

// stop lets the workers that are left finish.
func (r *streamKillRun) stop() {
	r.t.Helper()
	for _, w := range r.workers {
		r.NoError(w.Stdin.Close())
	}
	for ended := 0; ended < len(r.workers); {
		if line, _ := take(r.fixture, r.lines, "the end of a worker"); line.Text == "" {
			r.True(line.From.State().Success(), "a worker ended with %v", line.From.State())
			ended++
		}
	}
}

// check goes through what the handlers have written, in the order in which they have. A handler that was killed ends when
// another begins.
func (r *streamKillRun) check() {
	r.t.Helper()
	rows, err := r.db.QueryContext(r.ctx(), fmt.Sprintf("SELECT stream, n, worker, what FROM %s ORDER BY id", r.table()))
	r.NoError(err)
	in, next, acked := map[int]int{}, map[int]int{}, map[[2]int]int{}
	inversions, together := 0, 0
	story := map[int][]string{} // the last of it, by stream
	for rows.Next() {
		var stream, n, worker, what int
		r.NoError(rows.Scan(&stream, &n, &worker, &what))
		story[stream] = append(story[stream], fmt.Sprintf("%d %s %d", worker, [...]string{"begins", "has done", "has failed", "stops in the middle of"}[what], n))
		story[stream] = story[stream][max(0, len(story[stream])-12):]
		switch what {
		case streamBegins:
			if other := in[stream]; other != 0 && !r.dead[other] {
				together++
			}
			in[stream] = worker
			switch {
			case n > next[stream]:
				inversions++
				r.t.Errorf("stream %d: message %d began where %d was expected, after %q", stream, n, next[stream], story[stream])
			case n < next[stream]: // its worker was killed before the ack was in the table, or could not renew its lease
				r.again++
				if !r.dead[acked[[2]int{stream, n}]] {
					r.lapsed++
				}
				next[stream] = n
			}
		case streamStops:
			if in[stream] == worker {
				delete(in, stream)
			}
		default:
			if in[stream] != worker {
				together++
			}
			if delete(in, stream); what == streamSucceeds {
				next[stream], acked[[2]int{stream, n}] = n+1, worker
			}
		}
	}
	r.NoError(rows.Err())
	r.Zero(together, "two handlers in a stream")
	r.Zero(inversions, "inversions")
	for s := range r.streams {
		r.Equal(r.each*r.rounds, next[s], "messages of stream %d", s)
	}
	r.Equal(r.messages(), int(r.number("SELECT COUNT(*) FROM {all} WHERE {status} = %d", outbox.Done)), "messages that are done")
	r.Zero(r.number("SELECT COUNT(*) FROM {outbox_stream}"), "streams without messages leave no rows")
}
