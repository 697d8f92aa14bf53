package streams_test

import (
	"errors"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/internal/testprocess"
)

// streamKillPlan is the size of the test.
type streamKillPlan struct {
	streams, each, workers, kills int

	ahead    int           // messages of each stream that are published before they are handled
	changes  time.Duration // how often, about, a worker comes or goes by itself; 0 is never
	lease    time.Duration
	unlapsed bool // the lease is so long that no living worker may lose it, however busy the machine is
	skips    bool // workers skip what fails for good; else somebody mends or skips it
}

// newStreamKillPlan is what takes seconds, and full where OUTBOX_TEST_STREAMS says so. A SQL Server may be a slow one.
func newStreamKillPlan(backend string) streamKillPlan {
	plan := streamKillPlan{streams: 200, each: 12, workers: 4, kills: 4, ahead: 4, changes: 2 * time.Second, lease: 5 * time.Second}
	if os.Getenv("OUTBOX_TEST_STREAMS") == "full" {
		plan = streamKillPlan{streams: 10_000, each: 20, workers: 4, kills: 40, ahead: 4, changes: 4 * time.Second, lease: 30 * time.Second, unlapsed: true}
	}
	if backend == testdb.SQLServer {
		plan.streams, plan.lease = plan.streams/5, max(plan.lease, 10*time.Second)
	}
	return plan
}

// A worker process is killed while it holds streams, and handlers fail, now and then for good: each stream is delivered in
// order, with one handler at a time, and to its end.
func TestStream_KilledWorkers(t *testing.T) {
	for name, skips := range map[string]bool{"block": false, "skip": true} {
		t.Run(name, func(t *testing.T) {
			killStreams(t, func(string) streamKillPlan {
				return streamKillPlan{streams: 10, each: 30, workers: 2, kills: 1, ahead: 15, lease: 5 * time.Second, skips: skips}
			})
		})
	}
}

// The same for longer, while workers also come and go by themselves.
func TestLong_KilledWorkersOfStreams(t *testing.T) { killStreams(t, newStreamKillPlan) }

func killStreams(t *testing.T, plan func(backend string) streamKillPlan) {
	t.Helper()
	seed := testprocess.Seed(t)
	t.Logf("OUTBOX_TEST_KILL_SEED=%d", seed)
	forEach(t, func(t *testing.T, f *fixture) {
		r := &streamKillRun{fixture: f, streamKillPlan: plan(f.DB.Name), seed: seed, random: rand.New(rand.NewPCG(seed, 0)),
			folder: t.TempDir(), lines: make(chan testprocess.Line, 100_000)}
		started := time.Now()
		r.run()
		took := time.Since(started)
		r.check()
		t.Logf("seed %d: %d messages of %d streams, %d workers killed with %d messages in hand, %d came and %d went; %d streams mended, %d skipped; "+
			"inversions %d, lost 0, two handlers in a stream %d; %d messages came again after a kill, %d after a lost lease, no stream went back by more than %d; %v",
			seed, r.messages(), r.streams, r.killed, r.reader.interrupted, r.came, r.went, r.mended, r.skipped,
			r.reader.inversions, r.reader.together, r.reader.again, r.reader.lapsed, r.reader.farthest, took.Round(time.Millisecond))
	})
}

// A streamKillRun starts workers, kills them and starts others, until every message has ended.
type streamKillRun struct {
	*fixture
	streamKillPlan
	seed   uint64
	random *rand.Rand
	folder string
	story  *story
	reader *streamReader // of the story

	workers            []*streamWorker // that work
	leaving            []*streamWorker // that have been told to end
	started            int
	lines              chan testprocess.Line
	published, handled int

	killAt []int // how many are handled when a worker is killed
	failed bool  // something has, for good, since it was last looked at

	killed, came, went, mended, skipped int
}

type streamWorker struct {
	*testprocess.Process
	number int
	killed bool
}

func (r *streamKillRun) messages() int { return r.streams * r.each }

func (r *streamKillRun) start() {
	r.T.Helper()
	r.started++
	job := streamJob{r.DB.Name, r.DB.DriverName, r.DB.DSN, r.Config.Schema, r.Config.Table, r.folder, r.started, r.seed, r.lease, r.skips}
	r.workers = append(r.workers, &streamWorker{testprocess.Start(r.T, streamWorkerVariable, job, r.lines), r.started, false})
}

func (r *streamKillRun) run() {
	var err error
	r.story, err = openStory(storyIn(r.folder))
	r.NoError(err)
	read, err := os.Open(storyIn(r.folder))
	r.NoError(err)
	defer func() { r.NoError(errors.Join(r.story.file.Close(), read.Close())) }()
	r.reader = newStreamReader(read, r.skips)
	for range r.kills {
		r.killAt = append(r.killAt, r.random.IntN(r.messages()*9/10))
	}
	slices.Sort(r.killAt)
	for range r.streamKillPlan.workers {
		r.start()
	}
	r.work()
	r.stop()
}

// work lasts until everything has ended.
func (r *streamKillRun) work() {
	r.T.Helper()
	look, change := time.NewTicker(200*time.Millisecond), time.NewTimer(r.nextChange())
	defer look.Stop()
	defer change.Stop()
	for seen, news := -1, time.Now(); ; {
		if r.published < min(r.messages(), r.handled+r.ahead*r.streams) {
			r.publish()
		}
		if len(r.killAt) > 0 && r.handled > r.killAt[0] {
			r.kill()
		}
		select {
		case line := <-r.lines:
			r.hear(line)
		case <-change.C:
			r.change()
			change.Reset(r.nextChange())
		case <-look.C:
			if r.failed {
				r.unblock()
			}
			if seen != r.handled {
				seen, news = r.handled, time.Now()
				continue
			}
			r.Less(time.Since(news), 2*suite.Patience, "no message has been handled since number %d", r.handled)
			switch {
			case r.published < r.messages() || !r.over():
			case len(r.killAt) > 0: // the workers were quicker than the kills: there is more to do
				r.each++
			default:
				return
			}
		}
	}
}

// publish adds some messages, of one stream after the other.
func (r *streamKillRun) publish() {
	r.T.Helper()
	const most = 500
	var messages []outbox.Message
	for ; len(messages) < most && r.published < r.messages(); r.published++ {
		stream, n := r.published%r.streams, r.published/r.streams
		messages = append(messages, outbox.Message{Topic: "work", StreamKey: suite.StreamKey(stream), UUID: strconv.Itoa(n)})
	}
	r.Enqueue(messages...)
}

// hear is for what a worker tells.
func (r *streamKillRun) hear(line testprocess.Line) {
	r.T.Helper()
	switch line.Text {
	case streamHandled:
		r.handled++
	case streamFailed:
		r.failed = true
	case "":
		left := slices.IndexFunc(r.leaving, func(w *streamWorker) bool { return w.Process == line.From })
		r.NotEqual(-1, left, "a worker ended by itself: %v", line.From.State())
		r.True(r.leaving[left].killed || line.From.State().Success(), "a worker ended with %v", line.From.State())
		r.leaving = slices.Delete(r.leaving, left, left+1)
	}
}

// kill kills a worker that handles messages, and starts another. It counts only if handlers were in the middle of something.
func (r *streamKillRun) kill() {
	r.T.Helper()
	r.NoError(r.reader.read())
	busy := slices.DeleteFunc(slices.Clone(r.workers), func(w *streamWorker) bool { return r.reader.handles[w.number] == 0 })
	if len(busy) == 0 {
		return
	}
	victim := r.remove(busy[r.random.IntN(len(busy))])
	victim.killed = true
	r.NoError(victim.Kill())
	for slices.Contains(r.leaving, victim) {
		line, _ := suite.Take(r.T, r.lines, "the end of a worker")
		r.hear(line)
	}
	r.NoError(r.story.tell(victim.number, storyIsKilled, 0, 0))
	before := r.reader.interrupted
	r.NoError(r.reader.read())
	if r.reader.interrupted > before {
		r.killAt = r.killAt[1:]
		r.killed++
	}
	r.start()
}

// change has a worker come, or the one that came go.
func (r *streamKillRun) change() {
	r.T.Helper()
	if len(r.workers) == r.streamKillPlan.workers {
		r.came++
		r.start()
		return
	}
	r.went++
	r.end(r.remove(r.anyone()))
}

func (r *streamKillRun) anyone() *streamWorker { return r.workers[r.random.IntN(len(r.workers))] }

// remove is for a worker that is to end.
func (r *streamKillRun) remove(w *streamWorker) *streamWorker {
	r.workers = slices.DeleteFunc(r.workers, func(other *streamWorker) bool { return other == w })
	r.leaving = append(r.leaving, w)
	return w
}

// nextChange is half of the time, or up to one and a half.
func (r *streamKillRun) nextChange() time.Duration {
	if r.changes == 0 {
		return time.Hour
	}
	return r.changes/2 + time.Duration(r.random.Int64N(int64(r.changes)))
}

// stop lets the workers finish that are left.
func (r *streamKillRun) stop() {
	r.T.Helper()
	for len(r.workers) > 0 {
		r.end(r.remove(r.anyone()))
	}
	for len(r.leaving) > 0 {
		line, _ := suite.Take(r.T, r.lines, "the end of a worker")
		r.hear(line)
	}
	r.NoError(r.reader.read())
}

// end has a worker finish.
func (r *streamKillRun) end(w *streamWorker) {
	r.T.Helper()
	r.NoError(w.Stdin.Close())
}

// over reports that nothing is left to be delivered.
func (r *streamKillRun) over() bool {
	r.T.Helper()
	open := r.Number("SELECT COUNT(*) FROM {outbox_state} WHERE {status} NOT IN (%d, %d)", outbox.Done, outbox.Failed)
	return r.unblock() == 0 && open == 0 // what fails after it was counted is found blocked
}

// unblock has the streams go on that are blocked, behind what has failed or with it mended, and returns how many there were.
func (r *streamKillRun) unblock() int {
	r.T.Helper()
	r.failed = false
	blocked, err := r.Outbox.BlockedStreams(r.Context(), outbox.ListParams{Limit: 1000})
	r.NoError(err)
	heads := map[outbox.MessageID]string{}
	for _, b := range blocked {
		heads[b.Head] = ""
	}
	records, err := r.Outbox.Get(r.Context(), slices.Collect(maps.Keys(heads))...)
	r.NoError(err)
	for _, record := range records {
		heads[record.ID] = record.UUID
	}
	for _, b := range blocked {
		stream, n := streamMessage(b.StreamKey, heads[b.Head])
		if fate := streamFateOf(r.seed, stream, n); fate.broken && !fate.curable {
			r.skipped++
			r.NoError(r.story.tell(0, storySkips, stream, n))
			r.NoError(r.Outbox.SkipHead(r.Context(), b.Topic, b.StreamKey))
			continue
		}
		r.mended++
		r.NoError(os.WriteFile(mendedIn(r.folder, stream, n), nil, 0o600))
		r.NoError(r.Outbox.RequeueStream(r.Context(), b.Topic, b.StreamKey))
	}
	return len(blocked)
}

// check goes through the story and the table.
func (r *streamKillRun) check() {
	r.T.Helper()
	read := r.reader
	for _, problem := range read.problems {
		r.T.Error(problem)
	}
	r.Zero(r.reader.together, "two handlers in a stream")
	r.Zero(r.reader.inversions, "inversions")
	if r.unlapsed {
		r.Zero(read.lapsed, "messages of workers that live came again")
	}
	r.LessOrEqual(r.reader.farthest, streamRun, "a stream goes back by one run")
	r.Equal(r.kills, r.killed)
	given := 0
	for stream := range r.streams {
		s := read.streams[stream]
		r.NotNil(s, "stream %d", stream)
		r.Equal(r.each, s.next, "messages of stream %d", stream)
		for n := range s.next {
			if fate := streamFateOf(r.seed, stream, n); fate.broken && (r.skips || !fate.curable) {
				given++
			}
		}
	}
	count := func(status outbox.Status) int {
		return int(r.Number("SELECT COUNT(*) FROM {outbox_state} WHERE {status} = %d", status))
	}
	r.Equal(given, count(outbox.Failed), "messages that have failed for good")
	r.Equal(r.messages()-given, count(outbox.Done), "messages that are done")
	r.Zero(r.Number("SELECT COUNT(*) FROM {outbox_stream}"), "streams without messages leave no rows")
}
