package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/quiet"
)

// Config is what every part of an outbox needs to know of it.
type Config struct {
	// Dialect is the database: SQLServer{}, Postgres{} or SQLite{}. Required.
	Dialect Dialect

	// Schema is the database schema of the outbox. Defaults to dbo on SQL Server and public on PostgreSQL;
	// SQLite has none to choose.
	Schema string

	// Table is the name of the table; all other objects are named after it.
	// Defaults to Outbox on SQL Server, and to outbox elsewhere.
	Table string

	// Store names this outbox among many (OBX-064): all that is logged has it as the field "store" (OBX-065, OBX-101), the
	// events of hooks carry it, and wake-ups reach the Subscribers of the same store only. At most 255 UTF-16 units.
	// Defaults to none.
	Store string

	// WorkerName is written to the rows that this process ends (OBX-023), at most 100 characters.
	// Defaults to the host's name and the process id.
	WorkerName string

	// DeleteOnAck deletes acknowledged rows at once instead of keeping them for a janitor. Defaults to false.
	DeleteOnAck bool

	// Log says whether Enqueue writes to the queue, to the log, or to both. Defaults to QueueOnly.
	Log LogMode

	// ExpiryBackoff bounds how long a message waits once its lease has expired: a random time up to it. Messages that were
	// claimed with one that ends its process are then not claimed with it again. At most 24 h. Defaults to ExponentialBackoff(time.Second,
	// time.Minute).
	ExpiryBackoff Backoff

	// OnStreamFailure says what becomes of a stream, of messages with a StreamKey, when one of them fails for good:
	// Block or DeadLetter. Defaults to Block.
	OnStreamFailure FailurePolicy

	// Hooks are called as things happen. Defaults to none.
	Hooks Hooks
}

// An Outbox is the queue in the table, call by call: what Publisher and Subscriber are made of, and what tools need.
// It is safe for concurrent use; it holds no connection and need not be closed.
//
// Every call that makes its own transaction returns ErrUnknownOutcome when the answer to its commit was lost. Settling,
// renewing, requeuing and purging can then be repeated: what was done already is left as it is.
type Outbox struct {
	db     *sql.DB
	engine *engine
	config Config
	logger watermill.LoggerAdapter

	troubles *quiet.Troubles // for what goes wrong again and again
}

// Limits of one call to the database. More is done in several.
const (
	maxBatch        = 1000    // rows a statement touches: SQL Server would escalate to a table lock at 5,000 locks
	maxBatchBytes   = 8 << 20 // payload bytes of one insert; a single larger payload goes alone
	maxLease        = 24 * time.Hour
	maxWorkerName   = 100
	backlogCountCap = 10_000
)

// New returns the outbox in the table that config names. It does not touch the database. A nil logger logs nothing.
func New(db *sql.DB, config Config, logger watermill.LoggerAdapter) (*Outbox, error) {
	if db == nil {
		return nil, base.ErrNilDB
	}
	return newOutbox(db, config, logger)
}

// newOutbox allows db to be nil for what only ever runs in a caller's transaction.
func newOutbox(db *sql.DB, config Config, logger watermill.LoggerAdapter) (*Outbox, error) {
	engine, err := newEngine(config.Dialect, config.Schema, config.Table)
	if err != nil {
		return nil, err
	}
	if config.WorkerName == "" {
		config.WorkerName = defaultWorkerName()
	}
	if err := validateText("WorkerName", config.WorkerName); err != nil {
		return nil, err
	}
	if utf16Length(config.WorkerName) > maxWorkerName {
		return nil, badField("WorkerName", "is longer than %d characters", maxWorkerName)
	}
	if err := config.Log.validate("Log"); err != nil {
		return nil, err
	}
	if err := validateKey("Store", config.Store); err != nil {
		return nil, err
	}
	setDefault(&config.OnStreamFailure, Block)
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
	return &Outbox{db: db, engine: engine, config: config, logger: logger, troubles: quiet.New(logger)}, nil
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

// DB is the database handle that New was given.
func (o *Outbox) DB() *sql.DB { return o.db }

// NewID makes an id that grows with time in the byte order of the database.
func (o *Outbox) NewID() (MessageID, error) { return o.engine.dialect.Traits().NewMessageID() }

// Settle ends or returns held messages of any number of claims in one transaction. Receipts that are not held any more
// are ignored and answered as refused (OBX-024, OBX-025, OBX-032, OBX-033, OBX-038, OBX-039). On a *sql.Tx or *sql.Conn
// it runs in the caller's transaction, which it never ends.
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

// settle does it in batches, and tells no hook; on a *sql.DB each batch is a transaction of its own, and an error of a later
// one leaves unknown how much was committed.
func (o *Outbox) settle(ctx context.Context, x Executor, settlements []Settlement) (refused []Receipt, err error) {
	all := settlements
	for len(settlements) > 0 && err == nil {
		n := min(len(settlements), maxBatch)
		var batch settled
		batch, err = o.settleBatch(ctx, x, settlements[:n], settleOptions{})
		refused = append(refused, batch.refused...)
		if settlements = settlements[n:]; err != nil && n < len(all)-len(settlements) {
			err = partly(x, err)
		}
	}
	return refused, err
}

// settled is what became of receipts that were not settled: they were no longer held, or others have locked their rows. gone
// are the messages whose states may have been deleted.
type settled struct {
	refused, busy []Receipt
	gone          []WorkItemID
}

type settleOptions struct {
	passOver bool         // do not wait for who has locked a row
	over     []OwnerToken // claims that are settled to the last message, whose leases end now

	skipFailed bool // what fails does not block its stream, whatever the config says
}

// settleBatch settles up to 1,000.
func (o *Outbox) settleBatch(ctx context.Context, x Executor, settlements []Settlement, options settleOptions) (settled, error) {
	rows, err := call(ctx, o.engine, x, opSettle, o.settleArg(x, settlements, options), nil,
		func(rows *sql.Rows, r *countRow) error { return r.scan(rows) })
	if err != nil {
		return settled{}, err
	}
	return o.readSettled(ctx, x, settlements, rows)
}

func (o *Outbox) settleArg(x Executor, settlements []Settlement, options settleOptions) settleArg {
	return settleArg{
		Worker:       o.config.WorkerName,
		BackoffMS:    defaultBackoffBase.Milliseconds(),
		BackoffMaxMS: defaultBackoffMax.Milliseconds(),
		DeleteAcked:  o.config.DeleteOnAck,
		PassOver:     options.passOver,
		Over:         options.over,
		Own:          ours(x),
		SkipFailed:   options.skipFailed || o.config.OnStreamFailure == DeadLetter,
		Groups:       groupSettlements(settlements),
	}
}

// readSettled says what the rows mean that settling has answered with, and tells of the joins that have ended by it.
func (o *Outbox) readSettled(ctx context.Context, x Executor, settlements []Settlement, rows []countRow) (result settled, err error) {
	if o.config.DeleteOnAck {
		for _, s := range settlements {
			if s.Outcome == Ack {
				result.gone = append(result.gone, s.Receipt.Seq)
			}
		}
	}
	if len(rows) == 0 {
		return result, nil
	}
	for _, r := range rows {
		if r.seq == 0 {
			continue
		}
		receipt := Receipt{Seq: WorkItemID(r.seq)}
		if err := receipt.Owner.UnmarshalText([]byte(r.id)); err != nil {
			return settled{}, err
		}
		if r.status.Int64 == receiptBusy {
			result.busy = append(result.busy, receipt)
		} else {
			result.refused = append(result.refused, receipt)
		}
	}
	return result, o.joinsEnded(ctx, x, rows)
}

// Ack marks held messages as processed (OBX-021 to OBX-026). Ids not held with this token are ignored.
func (o *Outbox) Ack(ctx context.Context, owner OwnerToken, ids ...WorkItemID) error {
	_, err := o.Settle(ctx, o.db, settleAll(owner, ids, Ack, nil))
	return err
}

// Abandon returns held messages for another attempt after the backoff (OBX-029 to OBX-035). Ids not held with this
// token are ignored. A nil lastError leaves the last one in the row.
func (o *Outbox) Abandon(ctx context.Context, owner OwnerToken, lastError error, ids ...WorkItemID) error {
	_, err := o.Settle(ctx, o.db, settleAll(owner, ids, Retry, lastError))
	return err
}

// Fail marks held messages as failed for good (OBX-036 to OBX-042). Ids not held with this token are ignored.
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

// Renew extends the leases of held messages to lease from now, and answers which it refused: those are lost. A message
// that a transaction has locked is passed over: its lease stays as it is.
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
			err = partly(o.db, err)
		}
	}
	return refused, err
}

// renew extends the leases of up to 1,000 messages.
func (o *Outbox) renew(ctx context.Context, x Executor, lease time.Duration, receipts []Receipt) ([]unrenewed, error) {
	return call(ctx, o.engine, x, opRenew, struct {
		LeaseMS int64         `json:"lease_ms"`
		Groups  []settleGroup `json:"groups"`
	}{lease.Milliseconds(), groupReceipts(receipts)}, nil, func(rows *sql.Rows, u *unrenewed) error { return u.scan(rows) })
}
