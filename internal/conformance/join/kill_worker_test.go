package join_test

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/seam"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
	"github.com/incursa/watermill-outbox/internal/testprocess"
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
	killEnded     = ""          // there is nothing more to come
)

type killNews struct {
	worker  *killWorker
	event   string
	message int
	owner   outbox.OwnerToken
}

// A killWorker is the process as the test sees it.
type killWorker struct {
	*testprocess.Process
	taken, handled int
	owners         map[outbox.OwnerToken]struct{} // of its claims, as far as their messages reached a handler
}

// start starts a worker, which ends with the test at the latest.
func (r *killRun) start() {
	r.T.Helper()
	job := killJob{r.DB.Name, r.DB.DriverName, r.DB.DSN, r.Config.Schema, r.Config.Table, r.table(), r.lease(), r.joins}
	w := &killWorker{testprocess.Start(r.T, killWorkerVariable, job, r.lines), 0, 0, map[outbox.OwnerToken]struct{}{}}
	r.workers = append(r.workers, w)
	r.started = append(r.started, w)
}

// read is what a line says.
func (r *killRun) read(line testprocess.Line) killNews {
	r.T.Helper()
	from := slices.IndexFunc(r.started, func(w *killWorker) bool { return w.Process == line.From })
	event, value, _ := strings.Cut(line.Text, " ")
	news := killNews{worker: r.started[from], event: event}
	var err error
	switch event {
	case killTaken:
		var owner uuid.UUID
		owner, err = uuid.Parse(value)
		news.owner = outbox.OwnerToken(owner)
	case killHandled, killFollowed:
		news.message, err = strconv.Atoi(value)
	}
	r.NoError(err, line.Text)
	return news
}

// run is the worker's process.
func (job killJob) run() (err error) {
	db, err := suite.OpenWorker(job.Driver, job.DSN)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()

	var mu sync.Mutex
	tell := func(event string, value any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintln(os.Stdout, event, value)
	}
	config := outbox.SubscriberConfig{
		Dialect: testoutbox.Dialect(job.Backend), Schema: job.Schema, Table: job.Table,
		MaxInFlight: 20, LeaseDuration: job.Lease, MaxAttempts: 100, MaxPollInterval: 50 * time.Millisecond,
		Hooks: outbox.Hooks{OnSettle: func(outbox.SettleEvent) { tell(killSettled, "") }},
	}
	if job.Joins.Recheck > 0 {
		return job.workOnJoins(db, config, tell)
	}
	return suite.WorkUntilStdinEnds(db, config, false, func(msg *message.Message) { job.handle(db, msg, tell) })
}

// handle leaves a row for the message, and acks. Whatever fails is done again by another.
func (job killJob) handle(db *sql.DB, msg *message.Message, tell func(event string, value any)) {
	if err := job.record(db, msg, tell); err != nil {
		suite.DeliveryOf(msg).SetErr(outbox.Unavailable(err)) // on a busy machine its turn to write may not come in time
		msg.Nack()
		return
	}
	msg.Ack()
}

func (job killJob) record(db *sql.DB, msg *message.Message, tell func(event string, value any)) error {
	_, owner := seam.Delivery(suite.DeliveryOf(msg)).Claim()
	tell(killTaken, owner)
	_, err := db.ExecContext(msg.Context(), fmt.Sprintf("INSERT INTO %s (id, worker) VALUES (%s, %d)", job.Handled, msg.UUID, os.Getpid()))
	if err == nil {
		tell(killHandled, msg.UUID)
	}
	return err
}
