package conformance

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
)

// streamWorkerVariable makes the test program a worker of TestStream_KilledWorkers. Its value is the job.
const streamWorkerVariable = "OUTBOX_TEST_STREAM_WORKER"

type streamJob struct {
	Backend, Driver, DSN string
	Schema, Table        string // of the outbox
	Handled              string // the table of what was handled, quoted
	Seed                 uint64
}

// What a worker tells, a line each on its standard output.
const (
	streamHandled = "handled" // a handler is done, and has not acked yet
	streamFailed  = "failed"  // a message has failed for good, in the table
)

// What a handler writes into the table.
const (
	streamBegins = iota
	streamSucceeds
	streamFails
	streamStops // its context has ended
)

// run is the worker's process.
func (job streamJob) run() (err error) {
	db, err := openWorker(job.Driver, job.DSN)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()

	var mu sync.Mutex
	tell := func(event string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintln(os.Stdout, event)
	}
	var mayFail sync.Mutex
	random := rand.New(rand.NewPCG(job.Seed, 0))
	fails := func() bool {
		mayFail.Lock()
		defer mayFail.Unlock()
		return random.IntN(5) == 0
	}
	return workUntilStdinEnds(db, outbox.SubscriberConfig{
		Dialect: dialect(job.Backend), Schema: job.Schema, Table: job.Table,
		MaxInFlight: 20, MaxStreamRun: 8, LeaseDuration: 3 * time.Second, MaxAttempts: 4, MaxPollInterval: 50 * time.Millisecond,
		Backoff: func(int) time.Duration { return time.Millisecond },
		Hooks: outbox.Hooks{OnSettle: func(e outbox.SettleEvent) {
			if e.Outcomes[outbox.Fail] > 0 {
				tell(streamFailed)
			}
		}},
	}, false, func(msg *message.Message) {
		if job.handle(db, msg, fails()) {
			tell(streamHandled)
			msg.Ack()
		} else {
			msg.Nack()
		}
	})
}

// handle writes down that the handler begins, and how it ends.
func (job streamJob) handle(db *sql.DB, msg *message.Message, fails bool) (ok bool) {
	note := func(ctx context.Context, what int) error {
		var stream int
		if _, err := fmt.Sscanf(deliveryOf(msg).StreamKey(), "stream %d", &stream); err != nil {
			return err
		}
		_, err := db.ExecContext(ctx, fmt.Sprintf("INSERT INTO %s (stream, n, worker, what) VALUES (%d, %s, %d, %d)",
			job.Handled, stream, msg.UUID, os.Getpid(), what))
		return err
	}
	err := note(msg.Context(), streamBegins)
	if err == nil && fails {
		deliveryOf(msg).SetErr(errors.New("it was its turn to fail"))
		err = note(msg.Context(), streamFails)
	} else if err == nil {
		if err = note(msg.Context(), streamSucceeds); err == nil {
			return true
		}
	}
	if err != nil {
		deliveryOf(msg).SetErr(errors.Join(err, note(context.WithoutCancel(msg.Context()), streamStops)))
	}
	return false
}
