package conformance

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"

	outbox "github.com/incursa/watermill-outbox"
)

// killWorkerVariable makes the test program a worker of the kill test. Its value is the job.
const killWorkerVariable = "OUTBOX_TEST_KILL_WORKER"

type killJob struct {
	Backend, Driver, DSN string
	Schema, Table        string // of the outbox
	Handled              string // the table of what was handled, quoted
	Lease                time.Duration
	Joins                joinJob
}

// What a worker tells, a line each on its standard output.
const (
	killTaken     = "taken"     // owner: a message has reached a handler
	killHandled   = "handled"   // message: its handler is done, and has not acked yet
	killContinued = "continued" // a look at a join is committed
	killFollowed  = "followed"  // message: what follows a join has reached its handler
	killSettled   = "settled"   // outcomes are in the table
	killEnded     = "ended"     // told by nobody: there is nothing more to come
)

type killNews struct {
	worker  *killWorker
	event   string
	message int
	owner   outbox.OwnerToken
}

// A killWorker is the process as the test sees it.
type killWorker struct {
	cmd            *exec.Cmd
	stdin          io.Closer
	taken, handled int
	owners         map[outbox.OwnerToken]struct{} // of its claims, as far as their messages reached a handler
}

// start starts a worker, which ends with the test at the latest.
func (r *killRun) start() {
	r.t.Helper()
	program, err := os.Executable()
	r.NoError(err)
	job, err := json.Marshal(killJob{r.db.Name, r.db.DriverName, r.db.DSN, r.config.Schema, r.config.Table, r.table(), r.lease(), r.joins})
	r.NoError(err)
	w := &killWorker{cmd: exec.CommandContext(r.ctx(), program), owners: map[outbox.OwnerToken]struct{}{}}
	w.cmd.Env = append(os.Environ(), killWorkerVariable+"="+string(job))
	w.cmd.Stderr = os.Stderr
	w.stdin, err = w.cmd.StdinPipe()
	r.NoError(err)
	stdout, err := w.cmd.StdoutPipe()
	r.NoError(err)
	r.NoError(w.cmd.Start())
	r.workers = append(r.workers, w)
	ctx := r.ctx() // ends before the test waits for what it has started
	done := make(chan struct{})
	r.t.Cleanup(func() { <-done })
	go func() {
		defer close(done)
		w.listen(ctx, stdout, r.news)
	}()
}

func (w *killWorker) listen(ctx context.Context, stdout io.Reader, all chan<- killNews) {
	tell := func(news killNews) {
		select {
		case all <- news:
		case <-ctx.Done(): // nobody listens any more
		}
	}
	lines := bufio.NewReader(stdout)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			break // the end; what is before it is half a line, of one that was killed
		}
		event, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		news := killNews{worker: w, event: event}
		switch event {
		case killTaken:
			var owner uuid.UUID
			owner, err = uuid.Parse(value)
			news.owner = outbox.OwnerToken(owner)
		case killHandled, killFollowed:
			news.message, err = strconv.Atoi(value)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "kill worker: %q: %v\n", line, err)
			break
		}
		tell(news)
	}
	_ = w.cmd.Wait() // how it ended is in its ProcessState
	tell(killNews{worker: w, event: killEnded})
}

// runKillWorker is the worker's process: it does its job and exits, if this is one.
func runKillWorker() {
	text := os.Getenv(killWorkerVariable)
	if text == "" {
		return
	}
	if err := killWorkerMain(text); err != nil {
		fmt.Fprintln(os.Stderr, "kill worker:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func killWorkerMain(text string) (err error) {
	var job killJob
	if err := json.Unmarshal([]byte(text), &job); err != nil {
		return err
	}
	db, err := sql.Open(job.Driver, job.DSN)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(8)
	db.SetMaxIdleConns(8)

	var mu sync.Mutex
	tell := func(event string, value any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintln(os.Stdout, event, value)
	}
	config := outbox.SubscriberConfig{
		Dialect: dialect(job.Backend), Schema: job.Schema, Table: job.Table,
		MaxInFlight: 20, LeaseDuration: job.Lease, MaxAttempts: 100, MaxPollInterval: 50 * time.Millisecond,
		Hooks: outbox.Hooks{OnSettle: func(outbox.SettleEvent) { tell(killSettled, "") }},
	}
	if job.Joins.Recheck > 0 {
		return job.workOnJoins(db, config, tell)
	}
	sub, err := outbox.NewSubscriber(db, config, nil)
	if err != nil {
		return err
	}
	messages, err := sub.Subscribe(context.Background(), "work")
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // its end is the end of the job, however it comes
		_ = sub.Close()                      // whether all is settled is for the test to see
	}()
	var handlers sync.WaitGroup
	for msg := range messages {
		handlers.Go(func() { job.handle(db, msg, tell) })
	}
	handlers.Wait()
	return sub.Close()
}

// handle leaves a row for the message, and acks. Whatever fails is done again by another.
func (job *killJob) handle(db *sql.DB, msg *message.Message, tell func(event string, value any)) {
	if err := job.record(db, msg, tell); err != nil {
		deliveryOf(msg).SetErr(err)
		msg.Nack()
		return
	}
	msg.Ack()
}

func (job *killJob) record(db *sql.DB, msg *message.Message, tell func(event string, value any)) error {
	tell(killTaken, deliveryOf(msg).Receipt().Owner)
	_, err := db.ExecContext(msg.Context(), fmt.Sprintf("INSERT INTO %s (id, worker) VALUES (%s, %d)", job.Handled, msg.UUID, os.Getpid()))
	if err == nil {
		tell(killHandled, msg.UUID)
	}
	return err
}

func deliveryOf(msg *message.Message) *outbox.Delivery {
	delivery, ok := outbox.DeliveryFrom(msg.Context())
	if !ok {
		fmt.Fprintln(os.Stderr, "kill worker: a message without a delivery")
		os.Exit(1)
	}
	return delivery
}
