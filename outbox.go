package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/dialect"
	"github.com/incursa/watermill-outbox/internal/engine"
	"github.com/incursa/watermill-outbox/internal/field"
	"github.com/incursa/watermill-outbox/internal/quiet"
	"github.com/incursa/watermill-outbox/internal/seam"
)

// Config configures an Outbox.
type Config struct {
	// Dialect is the database: SQLServer{}, Postgres{} or SQLite{}. Required.
	Dialect Dialect

	// Schema is the database schema of the outbox. Defaults to dbo on SQL Server and public on PostgreSQL; on SQLite, which has
	// none to choose, it must be empty.
	Schema string

	// Table is the name of the table; all other objects are named after it.
	// Defaults to Outbox on SQL Server, and to outbox elsewhere.
	Table string

	// Store names this outbox among several: log lines have it as the field "store", events of hooks carry it, and wake-ups
	// reach only Subscribers of the same store. At most 255 UTF-16 units. Defaults to none.
	Store string

	// WorkerName is written to the rows of messages that this process ends. At most 100 UTF-16 units.
	// Defaults to the host's name and the process id.
	WorkerName string

	// DeleteOnAck deletes acknowledged messages at once instead of leaving them to the janitor. Defaults to false.
	DeleteOnAck bool

	// Log says whether Enqueue writes to the queue, to the log, or to both. Defaults to QueueOnly.
	Log LogMode

	// ExpiryBackoff limits how long a message waits after its lease has expired: a random time up to it. It separates a
	// message that kills its process from those that were claimed with it. At most 24 h. Defaults to
	// ExponentialBackoff(time.Second, time.Minute).
	ExpiryBackoff Backoff

	// OnStreamFailure says what happens to a stream when one of its messages fails for good: Block or DeadLetter. Defaults to
	// Block.
	OnStreamFailure FailurePolicy

	// Hooks are called as things happen. Defaults to none.
	Hooks Hooks
}

// An Outbox offers the queue in the table as plain calls: Publisher and Subscriber are built on it, and tools use it.
// It is safe for concurrent use; it holds no connection and need not be closed.
//
// A call that makes its own transaction returns ErrUnknownOutcome if the answer to its commit was lost. Settling, renewing,
// requeuing and purging can then be repeated: what is already done stays as it is. Any call may return ErrSchema, and in the
// caller's transaction an error for which IsRetryable is true.
type Outbox struct {
	db     *sql.DB
	engine *engine.Engine
	config Config
	logger watermill.LoggerAdapter

	troubles *quiet.Troubles // logs errors that repeat

	around func(ctx context.Context, batch seam.Batch) (int, error) // see seam.Operations.Around; nil for none
}

// Limits of one call to the database. Larger work is done in several calls.
const (
	maxBatch        = 1000    // rows per statement: SQL Server would escalate to a table lock at 5,000 locks
	maxBatchBytes   = 8 << 20 // bytes of messages per insert; a larger message is inserted alone
	maxWorkerName   = 100
	backlogCountCap = 10_000
)

// New returns the outbox in the table that config names. It does not touch the database. A nil logger logs nothing. It
// returns an error if db is nil, or a *FieldError that names a bad field.
func New(db *sql.DB, config Config, logger watermill.LoggerAdapter) (*Outbox, error) {
	if db == nil {
		return nil, base.ErrNilDB
	}
	o, err := newOutbox(db, config, logger)
	return o, field.In("Config", err)
}

// newOutbox allows a nil db, for use in callers' transactions only. Its errors name fields without their config.
func newOutbox(db *sql.DB, config Config, logger watermill.LoggerAdapter) (*Outbox, error) {
	e, err := engine.New(config.Dialect, config.Schema, config.Table, readOnly)
	if err != nil {
		return nil, err
	}
	if db != nil {
		if err := field.Problem("Dialect", dialect.MismatchedDriver(config.Dialect, db)); err != nil {
			return nil, err
		}
	}
	e.Before = flushScope
	if config.WorkerName == "" {
		config.WorkerName = defaultWorkerName()
	}
	if err := field.Text("WorkerName", config.WorkerName); err != nil {
		return nil, err
	}
	if utf16Length(config.WorkerName) > maxWorkerName {
		return nil, field.Bad("WorkerName", "is longer than %d characters", maxWorkerName)
	}
	if err := config.Log.validate("Log"); err != nil {
		return nil, err
	}
	if err := field.Key("Store", config.Store); err != nil {
		return nil, err
	}
	field.Default(&config.OnStreamFailure, Block)
	if err := config.OnStreamFailure.validate("OnStreamFailure"); err != nil {
		return nil, err
	}
	if config.ExpiryBackoff == nil {
		config.ExpiryBackoff = defaultBackoff
	}
	if logger == nil {
		logger = watermill.NopLogger{}
	}
	if config.Store != "" {
		logger = logger.With(watermill.LogFields{"store": config.Store})
	}
	return &Outbox{db: db, engine: e, config: config, logger: logger, troubles: quiet.New(logger)}, nil
}

func defaultWorkerName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	if len(host) > maxWorkerName-20 {
		host = host[:maxWorkerName-20]
	}
	return fmt.Sprintf("%s:%d", host, os.Getpid())
}

// DB returns the database handle that was passed to New.
func (o *Outbox) DB() *sql.DB { return o.db }

// NewID returns a new id. Ids grow with time in the byte order of the database.
func (o *Outbox) NewID() (MessageID, error) { return o.engine.Dialect.Traits().NewMessageID() }

// Settle ends held messages of any number of claims, or returns them to the queue. Receipts that are no longer held are
// ignored and returned as refused. On a *sql.DB each 1,000 settlements are one transaction; on a *sql.Tx or *sql.Conn it
// runs in the caller's transaction, which it never ends. It returns a *FieldError for a bad settlement.
func (o *Outbox) Settle(ctx context.Context, x Executor, settlements []Settlement) (refused []WorkItemID, err error) {
	if isNil(x) {
		return nil, base.ErrNilDB
	}
	for _, s := range settlements {
		if err := s.validate(); err != nil {
			return nil, err
		}
	}
	started := time.Now()
	receipts, err := o.settle(ctx, x, settlements)
	o.config.Hooks.settled(SettleEvent{Store: o.config.Store, Outcomes: outcomes(settlements), Refused: len(receipts),
		Took: time.Since(started), Err: err})
	return workItems(receipts, err)
}

// settle works in batches, and calls no hook. On a *sql.DB each batch has its own transaction, so the error of a later one
// leaves unknown how much was committed.
func (o *Outbox) settle(ctx context.Context, x Executor, settlements []Settlement) (refused []Receipt, err error) {
	all := settlements
	for len(settlements) > 0 && err == nil {
		n := min(len(settlements), maxBatch)
		var batch settled
		batch, err = o.settleBatch(ctx, x, settlements[:n], settleOptions{})
		refused = append(refused, batch.refused...)
		if settlements = settlements[n:]; err != nil && n < len(all)-len(settlements) {
			err = engine.Partly(x, err)
		}
	}
	return refused, err
}

type settleOptions struct {
	passOver bool         // skip locked rows instead of waiting
	over     []OwnerToken // claims whose messages are all settled: their leases end now

	skipFailed bool // failed messages do not block their streams, whatever the config says
}

// settleBatch settles up to 1,000.
func (o *Outbox) settleBatch(ctx context.Context, x Executor, settlements []Settlement, options settleOptions) (settled, error) {
	rows, err := engine.Call(ctx, o.engine, x, opSettle, o.settleArg(x, settlements, options), nil,
		func(rows *sql.Rows, r *countRow) error { return r.scan(rows) })
	if err != nil {
		return settled{}, err
	}
	return o.readSettled(x, settlements, rows)
}

func (o *Outbox) settleArg(x Executor, settlements []Settlement, options settleOptions) settleArg {
	return settleArg{
		Worker:       o.config.WorkerName,
		BackoffMS:    defaultBackoffBase.Milliseconds(),
		BackoffMaxMS: defaultBackoffMax.Milliseconds(),
		DeleteAcked:  o.config.DeleteOnAck,
		PassOver:     options.passOver,
		Over:         options.over,
		Own:          engine.Ours(x),
		SkipFailed:   options.skipFailed || o.config.OnStreamFailure == DeadLetter,
		Groups:       groupSettlements(settlements, o.config.DeleteOnAck),
	}
}

// Ack marks held messages as done. Ids not held with this token are ignored.
func (o *Outbox) Ack(ctx context.Context, owner OwnerToken, ids ...WorkItemID) error {
	_, err := o.Settle(ctx, o.db, settleAll(owner, ids, Ack, nil))
	return err
}

// Abandon returns held messages to the queue for another attempt after a backoff of min(2^RetryCount s, 60 s). Ids not held
// with this token are ignored. A nil lastError keeps the one in the row.
func (o *Outbox) Abandon(ctx context.Context, owner OwnerToken, lastError error, ids ...WorkItemID) error {
	_, err := o.Settle(ctx, o.db, settleAll(owner, ids, Retry, lastError))
	return err
}

// Fail marks held messages as failed for good. Ids not held with this token are ignored. A nil lastError keeps the one in
// the row.
func (o *Outbox) Fail(ctx context.Context, owner OwnerToken, lastError error, ids ...WorkItemID) error {
	_, err := o.Settle(ctx, o.db, settleAll(owner, ids, Fail, lastError))
	return err
}

func settleAll(owner OwnerToken, ids []WorkItemID, outcome Outcome, lastError error) []Settlement {
	settlements := make([]Settlement, len(ids))
	for i, id := range ids {
		settlements[i] = Settlement{Receipt: Receipt{id, owner}, Outcome: outcome, Err: lastError}
	}
	return settlements
}

// Renew extends the leases of held messages to lease from now, 1 ms to 24 h, and returns those that it refused: they are
// lost. A message that a transaction has locked is skipped: its lease stays as it is. It returns a *FieldError for a bad
// lease.
func (o *Outbox) Renew(ctx context.Context, lease time.Duration, receipts ...Receipt) (refused []WorkItemID, err error) {
	if err := validateLease("lease", lease); err != nil {
		return nil, err
	}
	all := len(receipts)
	for len(receipts) > 0 && err == nil {
		n := min(len(receipts), maxBatch)
		var batch []unrenewed
		batch, err = o.renew(ctx, o.db, lease, receipts[:n])
		for _, u := range batch {
			if !u.held {
				refused = append(refused, u.receipt.Seq)
			}
		}
		if receipts = receipts[n:]; err != nil && n < all-len(receipts) {
			err = engine.Partly(o.db, err)
		}
	}
	return refused, err
}

// renew extends the leases of up to 1,000 messages.
func (o *Outbox) renew(ctx context.Context, x Executor, lease time.Duration, receipts []Receipt) ([]unrenewed, error) {
	return engine.Call(ctx, o.engine, x, opRenew, newRenewArg(lease, receipts), nil, func(rows *sql.Rows, u *unrenewed) error { return u.scan(rows) })
}
