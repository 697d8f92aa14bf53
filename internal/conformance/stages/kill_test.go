package stages_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/kept"
	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
	"github.com/incursa/watermill-outbox/internal/testprocess"
	"github.com/incursa/watermill-outbox/middleware"
)

const workerVariable = "OUTBOX_TEST_STAGES_WORKER"

// A workerJob is what a worker's process needs.
type workerJob struct {
	Backend, Driver, DSN, Schema, Effects string
	Lease                                 time.Duration
}

// What a worker says, a line each.
const (
	saidAgain = "again" // a stage ran that was saved: never
	saidBegun = "begun" // a stage has had its effect, and is not over

	saidSettled = "settled" // something is in the table
)

// killPlan is small in the suite.
func killPlan() (messages, kills int) {
	if os.Getenv("OUTBOX_TEST_KILL") == "full" {
		return 2000, 30
	}
	return 60, 5
}

// TestLong_StagesUnderKills kills workers between the effect of a stage and its end, while each stage also fails at its first
// try. Effects in transactions happen once, and no stage that was saved runs again.
func TestLong_StagesUnderKills(t *testing.T) {
	messages, kills := killPlan()
	seed := testprocess.Seed(t)
	t.Logf("OUTBOX_TEST_KILL_SEED=%d", seed)
	forEach(t, func(t *testing.T, f fixture) {
		random := rand.New(rand.NewPCG(seed, 0))
		lease := time.Second
		if f.DB.Name == testdb.SQLServer {
			lease = 5 * time.Second
		}
		job := workerJob{f.DB.Name, f.DB.DriverName, f.DB.DSN, f.DB.Schema, f.effects(), lease}
		f.Enqueue("orders", 1, messages)
		lines := make(chan testprocess.Line)
		workers := map[*testprocess.Process]bool{}
		start := func() { workers[testprocess.Start(t, workerVariable, job, lines)] = true }
		start()
		start()
		killed, wait := 0, random.IntN(10)
		total := messages
		for done := 0; done < total || killed < kills; done = f.Count(outbox.Done) {
			if done == total { // quicker than the kills: there is more to do
				f.Enqueue("orders", 1+total, messages)
				total += messages
			}
			line := <-lines
			f.NotEqual(saidAgain, line.Text)
			if wait--; line.Text == saidBegun && wait < 0 && killed < kills && workers[line.From] {
				f.NoError(line.From.Kill())
				delete(workers, line.From)
				killed, wait = killed+1, random.IntN(2*messages/kills)
				start()
			}
		}
		for worker := range workers {
			f.NoError(worker.Stdin.Close())
		}
		for len(workers) > 0 {
			line := <-lines
			f.NotEqual(saidAgain, line.Text)
			if line.Text == "" {
				delete(workers, line.From)
			}
		}
		f.Equal(total, f.affected(0))
		f.Equal(total, f.affected(2))
		f.GreaterOrEqual(f.affected(1), total)
		t.Logf("%d messages, %d kills; the stage without a transaction had %d effects", total, killed, f.affected(1))
	})
}

// run is the worker's process: it ends with its standard input.
func (job workerJob) run() (err error) {
	open := sql.Open
	if job.Backend == testdb.SQLite {
		open = kept.Open
	}
	db, err := open(job.Driver, job.DSN)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	queue, err := outbox.New(db, outbox.Config{Dialect: testoutbox.Dialect(job.Backend), Schema: job.Schema}, nil)
	if err != nil {
		return err
	}
	subscriber, err := outbox.NewSubscriber(db, outbox.SubscriberConfig{
		Dialect: testoutbox.Dialect(job.Backend), Schema: job.Schema, MaxInFlight: 5, LeaseDuration: job.Lease, MaxAttempts: 100,
		MaxPollInterval: 50 * time.Millisecond, Backoff: func(int) time.Duration { return time.Millisecond }, AllowCompeting: true,
		Hooks: outbox.Hooks{OnSettle: func(outbox.SettleEvent) { fmt.Println(saidSettled) }},
	}, nil)
	if err != nil {
		return err
	}
	messages, err := subscriber.Subscribe(context.Background(), "orders")
	if err != nil {
		return err
	}
	w := &worker{job: job, db: db, queue: queue, failed: map[string]bool{}}
	handler, err := middleware.Stages(w.stage(0, db), w.stage(1, nil), w.stage(2, db))
	if err != nil {
		return err
	}
	var handlers sync.WaitGroup
	handlers.Go(func() {
		for msg := range messages {
			handlers.Go(func() {
				if err := handler(msg); err != nil {
					delivery(msg).SetErr(err)
					msg.Nack()
				} else {
					msg.Ack()
				}
			})
		}
	})
	_, err = bufio.NewReader(os.Stdin).ReadString('\n') // there is only its end
	if err.Error() == "EOF" {
		err = nil
	}
	err = errors.Join(err, subscriber.Close())
	handlers.Wait()
	return err
}

type worker struct {
	job   workerJob
	db    *sql.DB
	queue *outbox.Outbox

	mu     sync.Mutex
	failed map[string]bool
}

// stage has its effect, says so, and fails at the first try of this worker.
func (w *worker) stage(number int, db *sql.DB) middleware.Stage {
	bit := middleware.OwnStage << number
	return middleware.Stage{Bit: bit, DB: db, Run: func(msg *message.Message) error {
		records, err := w.queue.Get(msg.Context(), delivery(msg).MessageID())
		if err != nil {
			return err
		}
		if len(records) != 1 || records[0].Stages.Has(bit) {
			fmt.Println(saidAgain)
		}
		if err := affect(w.db, w.job.Effects, number, msg); err != nil {
			return err
		}
		fmt.Println(saidBegun)
		w.mu.Lock()
		defer w.mu.Unlock()
		try := strings.Join([]string{msg.UUID, fmt.Sprint(number)}, "/")
		if !w.failed[try] {
			w.failed[try] = true
			return errStage
		}
		return nil
	}}
}
