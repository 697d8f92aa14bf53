package fanout_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/fanout"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
	"github.com/incursa/watermill-outbox/internal/testprocess"
)

// fanoutWorkerVariable makes the test program a dispatcher of the fanout's kill test. Its value is the job.
const fanoutWorkerVariable = "OUTBOX_TEST_FANOUT_WORKER"

type fanoutJob struct {
	Backend, Driver, DSN string
	Schema, Table        string
	Lease                time.Duration
}

const fanoutTopics = 20

func fanoutTopic(i int) string { return fmt.Sprintf("copy %d", i) }

// TestLong_KilledDispatchersLoseAndDoubleNothing kills dispatcher processes while one of them dispatches to 20 topics and
// to a publisher. Every topic has every message once and in order; the publisher has each at least once, under one id.
func TestLong_KilledDispatchersLoseAndDoubleNothing(t *testing.T) {
	messages, kills, seed := 300, 4, testprocess.Seed(t)
	if os.Getenv("OUTBOX_TEST_KILL") == "full" {
		messages, kills = 2000, 20
	}
	t.Logf("OUTBOX_TEST_KILL_SEED=%d", seed)
	forEach(t, func(t *testing.T, f *fixture) {
		r := &fanoutRun{fixture: f, random: rand.New(rand.NewPCG(seed, 0)), lines: make(chan testprocess.Line), arrived: map[string]int{}, ids: map[string]string{}}
		started := time.Now()
		r.run(messages, kills)
		want := f.loggedUUIDs()
		f.Len(want, messages)
		for i := range fanoutTopics {
			f.Equal(want, f.UUIDsOf(fanoutTopic(i)), fanoutTopic(i))
		}
		twice := 0
		for _, uuid := range want {
			f.NotZero(r.arrived[uuid], "the message %s never arrived elsewhere", uuid)
			twice += r.arrived[uuid] - 1
		}
		f.Len(r.arrived, messages)
		f.NotZero(r.kills)
		t.Logf("%d messages to %d topics and a publisher, %d kills: lost 0, doubled 0; elsewhere %d came again, under the same id; %v",
			messages, fanoutTopics, r.kills, twice, time.Since(started).Round(time.Millisecond))
	})
}

// A fanoutRun starts dispatchers, and kills the one that is at work.
type fanoutRun struct {
	*fixture
	random  *rand.Rand
	workers []*testprocess.Process
	lines   chan testprocess.Line
	kills   int
	arrived map[string]int    // elsewhere, by UUID
	ids     map[string]string // by UUID
}

func (r *fanoutRun) run(messages, kills int) {
	r.Sequencer()
	var logging sync.WaitGroup
	defer logging.Wait()
	logging.Go(func() { // while the dispatchers are at work
		for from := 0; from < messages; from += 20 {
			var batch []outbox.Message
			for _, uuid := range suite.Numbered(from, min(from+20, messages)) {
				batch = append(batch, outbox.Message{UUID: uuid, Topic: "orders." + uuid})
			}
			if _, err := r.LogOutbox().Enqueue(context.Background(), r.DB.DB, batch...); err != nil {
				r.T.Errorf("logging: %v", err)
				return
			}
		}
	})
	r.start()
	r.start()
	next := r.threshold(messages, kills)
	for len(r.arrived) < messages || r.Passed("killed") < int64(messages) {
		line, ok := r.next(50 * time.Millisecond)
		if ok && r.kills < kills && len(r.arrived) >= next {
			r.kill(line.From)
			next = len(r.arrived) + r.threshold(messages, kills)
		}
	}
	workers := r.workers
	r.workers = nil
	for _, w := range workers {
		r.NoError(w.Stdin.Close())
	}
	for ended := 0; ended < len(workers); {
		if line, ok := r.next(suite.Patience); ok && line.Text == "" {
			ended++
		}
	}
}

// threshold is after how many messages more the next kill comes.
func (r *fanoutRun) threshold(messages, kills int) int { return 1 + r.random.IntN(messages/(kills+1)) }

// next counts what comes, which is a message that a worker's publisher got, and its id, unless nothing does for a while. Two
// ids for one message are an error.
func (r *fanoutRun) next(patience time.Duration) (line testprocess.Line, ok bool) {
	r.T.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case line = <-r.lines:
	case <-timer.C:
		return line, false
	}
	if line.Text == "" {
		r.False(slices.Contains(r.workers, line.From), "a dispatcher ended by itself: %v", line.From.State())
		return line, true
	}
	uuid, id, _ := strings.Cut(line.Text, " ")
	if before, known := r.ids[uuid]; known {
		r.Equal(before, id, "the message %s came again under another id", uuid)
	}
	r.ids[uuid] = id
	r.arrived[uuid]++
	return line, true
}

func (r *fanoutRun) kill(w *testprocess.Process) {
	r.T.Helper()
	if !slices.Contains(r.workers, w) {
		return
	}
	<-time.After(time.Duration(r.random.IntN(int(20 * time.Millisecond)))) // anywhere in its turn
	r.NoError(w.Kill())
	r.workers = slices.DeleteFunc(r.workers, func(other *testprocess.Process) bool { return w == other })
	for {
		if line, ok := r.next(suite.Patience); !ok || line == (testprocess.Line{From: w}) {
			break
		}
	}
	r.kills++
	r.start()
}

func (r *fanoutRun) start() {
	r.T.Helper()
	lease := 300 * time.Millisecond
	if r.DB.Name == testdb.SQLServer {
		lease = 3 * time.Second
	}
	job := fanoutJob{r.DB.Name, r.DB.DriverName, r.DB.DSN, r.Config.Schema, r.Config.Table, lease}
	r.workers = append(r.workers, testprocess.Start(r.T, fanoutWorkerVariable, job, r.lines))
}

// run is the dispatcher's process.
func (job fanoutJob) run() (err error) {
	db, err := sql.Open(job.Driver, job.DSN)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	policy := fanout.Policy{Name: "killed", Topics: "orders.*", Destinations: []fanout.Destination{fanout.ToPublisher("pipe", &pipePublisher{}, "x")}}
	for i := range fanoutTopics {
		policy.Destinations = append(policy.Destinations, fanout.ToTopic(fanoutTopic(i)))
	}
	d, err := fanout.NewDispatcher(db, fanout.Config{
		Dialect: testoutbox.Dialect(job.Backend), Schema: job.Schema, Table: job.Table, Policies: []fanout.Policy{policy},
		BatchSize: 10, LeaseDuration: job.Lease, MaxPollInterval: 20 * time.Millisecond,
	}, nil)
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // its end is the end of the job
		_ = d.Close()                        // Run returns the same
	}()
	return d.Run(context.Background())
}

// A pipePublisher has published what the pipe has taken: the test reads it even if this process is killed then.
type pipePublisher struct{}

func (p *pipePublisher) Publish(_ string, messages ...*message.Message) error {
	for _, msg := range messages {
		if _, err := strconv.Atoi(msg.UUID); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(os.Stdout, msg.UUID, msg.Metadata[outbox.HeaderMessageID]); err != nil {
			return err
		}
	}
	return nil
}

func (p *pipePublisher) Close() error { return nil }
