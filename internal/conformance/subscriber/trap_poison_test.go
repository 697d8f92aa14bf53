package subscriber_test

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
	"github.com/incursa/watermill-outbox/internal/testprocess"
)

// poisonWorkerVariable makes the test program a worker whose process one of the messages ends. Its value is the job.
const poisonWorkerVariable = "OUTBOX_TEST_POISON_WORKER"

// poisonous is the UUID of the message that ends each process that handles it.
const poisonous = "5"

// poisonPlan is what the workers have to do. It is small in the normal suite, and at the defaults of a Subscriber, which
// takes minutes, where OUTBOX_TEST_KILL says full.
type poisonPlan struct {
	Messages, MaxAttempts int
	Lease, Base, Limit    time.Duration // the backoff is between the last two
	Poll, Handling        time.Duration
}

func newPoisonPlan() poisonPlan {
	if os.Getenv("OUTBOX_TEST_KILL") == "full" {
		return poisonPlan{Messages: 300, Handling: 30 * time.Millisecond}
	}
	return poisonPlan{Messages: 300, MaxAttempts: 8, Lease: 2 * time.Second, Base: 200 * time.Millisecond, Limit: 4 * time.Second,
		Poll: 20 * time.Millisecond, Handling: 10 * time.Millisecond}
}

type poisonJob struct {
	Backend, Driver, DSN, Schema, Table string
	Plan                                poisonPlan
	Alone                               bool // one message is handled at a time
}

// A message that ends its process takes those with it that were claimed together with it. They are not claimed together
// with it for ever: it fails alone.
func TestLong_PoisonThatKillsTheProcess(t *testing.T) {
	for _, workers := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d workers", workers), func(t *testing.T) {
			forEach(t, func(t *testing.T, f *fixture) { f.poison(workers, false) })
		})
	}
	t.Run("one at a time", func(t *testing.T) {
		forEach(t, func(t *testing.T, f *fixture) { f.poison(1, true) })
	})
}

// poison lets workers handle all messages, and starts another for each that is ended by one.
func (f *fixture) poison(workers int, alone bool) {
	f.T.Helper()
	plan := newPoisonPlan()
	f.EnqueueN("work", plan.Messages) // their UUIDs are 0, 1, 2 …
	job := poisonJob{f.DB.Name, f.DB.DriverName, f.DB.DSN, f.Config.Schema, f.Config.Table, plan, alone}
	lines := make(chan testprocess.Line)
	alive := map[*testprocess.Process]bool{}
	start := func() { alive[testprocess.Start(f.T, poisonWorkerVariable, job, lines)] = true }
	for range workers {
		start()
	}
	deaths, started := 0, time.Now()
	left := func() int64 { return f.Number("SELECT COUNT(*) FROM {all} WHERE {status} IN (0, 1)") }
	for left() > 0 {
		line := f.nextLine(lines)
		if line.Text != "" {
			continue // it has settled something
		}
		delete(alive, line.From)
		deaths++
		start()
	}
	for p := range alive {
		f.NoError(p.Stdin.Close())
	}
	for len(alive) > 0 {
		if line := f.nextLine(lines); line.Text == "" {
			delete(alive, line.From)
		}
	}
	failed := f.Number("SELECT COUNT(*) FROM {all} WHERE {status} = %d", outbox.Failed)
	most := f.Number("SELECT MAX({retry_count}) FROM {all} WHERE {uuid} <> '%s'", poisonous)
	f.T.Logf("%d processes ended by one message: %d failed; another has spent at most %d attempts; %v",
		deaths, failed, most, time.Since(started).Round(time.Millisecond))
	f.Equal(int64(1), failed, "messages that failed")
	f.Equal(int64(1), f.Number("SELECT COUNT(*) FROM {all} WHERE {status} = %d AND {uuid} = '%s'", outbox.Failed, poisonous))
	f.Equal(int64(plan.Messages-1), f.Number("SELECT COUNT(*) FROM {all} WHERE {status} = %d", outbox.Done))
}

// nextLine waits as long as a lease at the defaults and the longest backoff take.
func (f *fixture) nextLine(lines <-chan testprocess.Line) testprocess.Line {
	f.T.Helper()
	timer := time.NewTimer(2 * time.Minute)
	defer timer.Stop()
	select {
	case line := <-lines:
		return line
	case <-timer.C:
		f.FailNow("no news of any worker")
		panic("not reached")
	}
}

// run is the worker's process.
func (job poisonJob) run() (err error) {
	db, err := suite.OpenWorker(job.Driver, job.DSN)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	config := outbox.SubscriberConfig{
		Dialect: testoutbox.Dialect(job.Backend), Schema: job.Schema, Table: job.Table,
		MaxAttempts: job.Plan.MaxAttempts, LeaseDuration: job.Plan.Lease, MaxPollInterval: job.Plan.Poll,
		Hooks: outbox.Hooks{OnSettle: func(outbox.SettleEvent) { fmt.Println("settled") }},
	}
	if job.Plan.Base > 0 {
		config.Backoff = outbox.ExponentialBackoff(job.Plan.Base, job.Plan.Limit)
	}
	return suite.WorkUntilStdinEnds(db, config, job.Alone, func(msg *message.Message) {
		if msg.UUID == poisonous {
			os.Exit(3)
		}
		<-time.After(job.Plan.Handling)
		msg.Ack()
	})
}
