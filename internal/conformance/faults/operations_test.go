package faults_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/inbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/faults"
	"github.com/incursa/watermill-outbox/join"
)

// faultPlan is the size of the test under faults.
type faultPlan struct {
	operations, workers int
	patience            time.Duration // for all to be done once the faults have stopped
}

// newFaultPlan is small in the normal suite, and full, or of so many operations, where OUTBOX_TEST_FAULTS says so.
func newFaultPlan(t *testing.T) faultPlan {
	t.Helper()
	plan := faultPlan{operations: 150, workers: 4, patience: time.Minute}
	switch text := os.Getenv("OUTBOX_TEST_FAULTS"); text {
	case "":
	case "full":
		plan = faultPlan{operations: 20_000, workers: 8, patience: 2 * time.Minute}
	default:
		var err error
		if plan.operations, err = strconv.Atoi(text); err != nil {
			t.Fatalf("OUTBOX_TEST_FAULTS: %v", err)
		}
	}
	return plan
}

// faultSeed decides what each operation does and which faults it meets. OUTBOX_TEST_FAULTS_SEED repeats an earlier run.
func faultSeed(t *testing.T) uint64 {
	t.Helper()
	text := os.Getenv("OUTBOX_TEST_FAULTS_SEED")
	if text == "" {
		return rand.Uint64()
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("OUTBOX_TEST_FAULTS_SEED: %v", err)
	}
	return seed
}

// TestFaults_EveryOperationDoesWhatItsModelDoes runs every operation by several workers at once, beside Subscribers,
// consumer groups and sequencers, while statements hang, come late, are refused, and connections are cut before and after
// what they were sent was done. What was answered is held against what is there when the faults have stopped.
func TestFaults_EveryOperationDoesWhatItsModelDoes(t *testing.T) {
	plan, seed := newFaultPlan(t), faultSeed(t)
	t.Logf("OUTBOX_TEST_FAULTS_SEED=%d", seed)
	total := &faultTotal{}
	t.Cleanup(func() { total.print(t, fmt.Sprintf("faults: seed %d", seed)) })
	suite.ForEach(t, func(t *testing.T, f *fixture) {
		r := newFaultRun(f, plan, seed)
		r.startBeside()
		started := time.Now()
		r.work()
		worked := time.Since(started)
		r.schedule.Stop()
		r.drain()
		r.stopBeside()
		r.check()
		total.add(r.report(worked, time.Since(started)-worked))
	})
}

// leaseUnderFaults is short, so that leases run out in the test, and longer than what any statement of the library may take.
const leaseUnderFaults = 2 * time.Second

// A faultRun is the test on one database.
type faultRun struct {
	*fixture
	faultPlan
	seed     uint64
	schedule *faults.Schedule
	book     *faultBook
	calls    atomic.Int64

	pool, beside *sql.DB // of the operations and of what runs beside them, both with faults

	queue                *outbox.Outbox
	plain, toLog, toBoth *outbox.Publisher
	toJoin               *outbox.Publisher
	joins, healthyJoins  *join.Coordinator
	inbox, healthyInbox  *inbox.Inbox
	besideJoins          *join.Coordinator
	besideInbox          *inbox.Inbox
	handlers             sync.WaitGroup
	subscribers          []*outbox.Subscriber
	stopSequencers       context.CancelFunc
	sequencers           sync.WaitGroup
}

func newFaultRun(f *fixture, plan faultPlan, seed uint64) *faultRun {
	f.T.Helper()
	r := &faultRun{fixture: f, faultPlan: plan, seed: seed, book: newFaultBook()}
	r.schedule = faults.NewSchedule(f.DB.Name, faults.ScheduleConfig{
		Seed: seed, Rate: 0.04, Beside: 0.02, Hang: 300 * time.Millisecond, HangBeside: 2 * leaseUnderFaults, Delay: 5 * time.Millisecond,
		Broken: func(err error) { f.T.Errorf("the driver: %v", err) },
	})
	f.T.Cleanup(r.schedule.Stop)
	f.Exec("CREATE TABLE %s (what VARCHAR(40) NOT NULL, id VARCHAR(100) NOT NULL)", f.Object("effects"))
	f.NoError(inbox.Migrate(f.Context(), f.DB.DB, r.inboxConfig()))

	r.pool, r.beside = faults.Open(f.T, f.DB, r.schedule.Hooks("operations")), faults.Open(f.T, f.DB, r.schedule.Hooks("beside"))
	r.pool.SetMaxOpenConns(plan.workers)
	r.beside.SetMaxOpenConns(10)

	r.queue = f.NewOutbox(r.pool)
	r.plain = f.Publisher(r.pool)
	r.toLog = f.Publisher(r.pool, func(c *outbox.PublisherConfig) { c.Log = outbox.LogOnly })
	r.toBoth = f.Publisher(r.pool, func(c *outbox.PublisherConfig) { c.Log = outbox.QueueAndLog })
	r.joins, r.besideJoins, r.healthyJoins = r.coordinator(r.pool), r.coordinator(r.beside), r.coordinator(f.DB.DB)
	r.inbox, r.besideInbox, r.healthyInbox = r.openInbox(r.pool), r.openInbox(r.beside), r.openInbox(f.DB.DB)
	var err error
	r.toJoin, err = join.NewPublisher(r.pool, outbox.PublisherConfig{Dialect: f.Config.Dialect, Schema: f.Config.Schema}, r.joins, nil)
	f.NoError(err)
	return r
}

func (r *faultRun) coordinator(db *sql.DB) *join.Coordinator {
	r.T.Helper()
	c, err := join.NewCoordinator(db, join.Config{Dialect: r.Config.Dialect, Schema: r.Config.Schema, RecheckInterval: 5 * time.Second}, nil)
	r.NoError(err)
	return c
}

func (r *faultRun) inboxConfig() inbox.Config {
	return inbox.Config{Dialect: r.Config.Dialect, Schema: r.Config.Schema}
}

func (r *faultRun) openInbox(db *sql.DB) *inbox.Inbox {
	r.T.Helper()
	in, err := inbox.New(db, r.inboxConfig(), nil)
	r.NoError(err)
	return in
}

// work runs the operations, each under its own number, by several workers.
func (r *faultRun) work() {
	var next atomic.Int64
	var workers sync.WaitGroup
	for range r.workers {
		workers.Go(func() {
			for {
				index := next.Add(1)
				if index > int64(r.operations) {
					return
				}
				r.operation(uint64(index)) //nolint:gosec // it is positive
			}
		})
	}
	workers.Wait()
}

// A faultOperation is one of many, with chances of its own.
type faultOperation struct {
	*faultRun
	index  uint64
	random *rand.Rand
	names  int
}

// faultOperations are what an operation may do, each as often as it says.
var faultOperations = []struct {
	often int
	do    func(*faultOperation, context.Context)
}{
	{10, (*faultOperation).enqueue},
	{10, (*faultOperation).publish},
	{10, (*faultOperation).publishInTx},
	{8, (*faultOperation).publishWithTx},
	{10, (*faultOperation).publishLog},
	{8, (*faultOperation).workByHand},
	{3, (*faultOperation).staleHolder},
	{8, (*faultOperation).look},
	{2, (*faultOperation).reap},
	{3, (*faultOperation).requeue},
	{2, (*faultOperation).purge},
	{12, (*faultOperation).joinPieceByPiece},
	{6, (*faultOperation).joinAtOnce},
	{8, (*faultOperation).receive},
	{6, (*faultOperation).begin},
	{6, (*faultOperation).readLog},
	{1, (*faultOperation).forgetGroup},
	{1, (*faultOperation).comeAndGo},
}

func (r *faultRun) operation(index uint64) {
	op := &faultOperation{faultRun: r, index: index, random: rand.New(rand.NewPCG(r.seed, index))}
	limit := 2 * time.Second
	if op.random.IntN(20) == 0 {
		limit = time.Duration(1+op.random.IntN(20)) * time.Millisecond // it ends in the middle
	}
	ctx, cancel := context.WithTimeout(faults.Operation(r.Context(), index), limit)
	defer cancel()
	total := 0
	for _, o := range faultOperations {
		total += o.often
	}
	n := op.random.IntN(total)
	for _, o := range faultOperations {
		if n -= o.often; n < 0 {
			o.do(op, ctx)
			return
		}
	}
}

// name makes a name that nothing else has.
func (op *faultOperation) name(what string) string {
	op.names++
	return fmt.Sprintf("%s-%d-%d", what, op.index, op.names)
}

// one chooses one of a list.
func one[T any](op *faultOperation, list ...T) T { return list[op.random.IntN(len(list))] }

// called counts a call, and says what its error says is known.
func (r *faultRun) called(what string, err error) outcomeKnown {
	r.calls.Add(1)
	known := whatIsKnown(err)
	r.book.judge(what, err)
	return known
}

// effect writes a row in a transaction.
func (r *faultRun) effect(ctx context.Context, x outbox.Executor, what, id string) error {
	_, err := x.ExecContext(ctx, fmt.Sprintf("INSERT INTO %s (what, id) VALUES ('%s', '%s')", r.Object("effects"), what, id))
	return err
}
