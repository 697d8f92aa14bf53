package join

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/field"
	"github.com/incursa/watermill-outbox/internal/limits"
	"github.com/incursa/watermill-outbox/internal/seam"
)

// Config configures a Coordinator.
type Config struct {
	// Dialect is the database: outbox.SQLServer{}, outbox.Postgres{} or outbox.SQLite{}. Required.
	Dialect outbox.Dialect

	// Schema and Table name the outbox; the tables of its joins are named after it. Default to dbo and Outbox on SQL Server,
	// public and outbox on PostgreSQL, and outbox on SQLite, where Schema must be empty.
	Schema, Table string

	// Store names this outbox among several, as in outbox.Config. Defaults to none.
	Store string

	// WaitTopic is the topic of join wait messages. Where middleware.Transaction or middleware.Inbox is on the router, another topic
	// than the default must be among those that they exempt. Defaults to join.wait.
	WaitTopic string

	// RecheckInterval is how often a wait looks at its join even if nothing woke it: a safety net. Defaults to 5 minutes.
	RecheckInterval time.Duration

	// Hooks are called as things happen. Defaults to none.
	Hooks outbox.Hooks
}

// DefaultWaitTopic is the topic of join wait messages.
const DefaultWaitTopic = "join.wait"

func (c *Config) setDefaults() {
	field.Default(&c.WaitTopic, DefaultWaitTopic)
	field.Default(&c.RecheckInterval, 5*time.Minute)
}

func (c *Config) validate() error {
	if c.RecheckInterval < time.Millisecond || c.RecheckInterval > maxTimeout {
		return field.Bad("Config.RecheckInterval", "%v is not between 1 ms and %v", c.RecheckInterval, maxTimeout)
	}
	return validateTopic("Config.WaitTopic", c.WaitTopic)
}

// A Coordinator starts joins, adds steps to them, and sends messages that wait for their end. It is safe for concurrent use;
// it holds no connection and need not be closed.
//
// Each call takes the Executor it runs on: a *sql.DB, on which it makes its own transaction, or the caller's *sql.Tx or
// *sql.Conn, whose transaction it joins and never ends. Nil is the transaction of the context (outbox.InTx, outbox.WithTx),
// or else a transaction of its own on the Coordinator's *sql.DB. If InTx began that of the context on another *sql.DB, the
// call returns an *outbox.FieldError.
//
// A call returns outbox.ErrUnknownOutcome if the answer to its own commit was lost. Every call can be repeated: Attach,
// reports, Seal and Cancel change nothing that is already done, and Start, Enqueue and EnqueueWait return an error if the
// caller chose the ids. Any call may return outbox.ErrSchema, and in the caller's transaction an error for which
// outbox.IsRetryable is true.
type Coordinator struct {
	db     *sql.DB
	outbox *outbox.Outbox
	inside seam.Operations // of the outbox
	config Config
	logger watermill.LoggerAdapter
}

// NewCoordinator returns a coordinator for the joins of one outbox. It does not touch the database. A nil logger logs
// nothing. It returns an error if db is nil, or an *outbox.FieldError that names a bad field.
func NewCoordinator(db *sql.DB, config Config, logger watermill.LoggerAdapter) (*Coordinator, error) {
	config.setDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	o, err := outbox.New(db, outbox.Config{
		Dialect: config.Dialect, Schema: config.Schema, Table: config.Table, Store: config.Store, Hooks: config.Hooks}, logger)
	if err != nil {
		return nil, err
	}
	inside := seam.Outbox(o)
	return &Coordinator{db: db, outbox: o, inside: inside, config: config, logger: inside.Logger()}, nil
}

// StartParams say what a join waits for.
type StartParams struct {
	// ID names the join, so that a Start whose outcome is unknown can be repeated: ErrExists then says that it exists.
	// Outbox.NewID makes one. Defaults to a new one.
	ID ID

	// GroupingKey scopes the join, such as to a tenant or a workflow; ByGroup finds it. At most 255 UTF-16 units. Defaults
	// to none.
	GroupingKey string

	// ExpectedSteps is the number of steps that have to end, at least 1, unless the join is Open.
	ExpectedSteps int

	// Open lets steps be added until Seal, which sets the number of expected steps to those that it has. Defaults to false.
	Open bool

	// Quorum is the number of completed steps that end the join as completed. It ends as failed as soon as that number can
	// no longer be reached. Defaults to none: the join ends when all steps have ended.
	Quorum int

	// FailFast ends the join as failed when the first step fails. It cannot be combined with Quorum. Defaults to false.
	FailFast bool

	// Metadata is any text, typically JSON, for people who look at the join. Defaults to none.
	Metadata string
}

func (p *StartParams) validate() error {
	switch {
	case p.Open && p.ExpectedSteps != 0:
		return field.Bad("StartParams.ExpectedSteps", "is set for an open join; Seal sets it")
	case !p.Open && p.ExpectedSteps <= 0:
		return field.Bad("StartParams.ExpectedSteps", "%d is not above 0; set Open if the number is not known yet", p.ExpectedSteps)
	case p.ExpectedSteps > maxSteps:
		return field.Bad("StartParams.ExpectedSteps", "%d is more than %d", p.ExpectedSteps, maxSteps)
	case p.Quorum < 0 || p.Quorum > maxSteps:
		return field.Bad("StartParams.Quorum", "%d is not between 0, for none, and %d", p.Quorum, maxSteps)
	case !p.Open && p.Quorum > p.ExpectedSteps:
		return field.Bad("StartParams.Quorum", "%d is more than the %d expected steps", p.Quorum, p.ExpectedSteps)
	case p.FailFast && p.Quorum > 0:
		return field.Bad("StartParams.FailFast", "contradicts Quorum, which allows failures; set one of them")
	}
	if err := field.Key("StartParams.GroupingKey", p.GroupingKey); err != nil {
		return err
	}
	if err := field.Problem("StartParams.Metadata", limits.AnyLength(p.Metadata)); err != nil {
		return err
	}
	return nil
}

// maxSteps is what an INT can count.
const maxSteps = 1<<31 - 1

// Start begins a join and returns its id. It returns ErrExists, with the id, if a join with StartParams.ID exists already,
// and an *outbox.FieldError for bad parameters.
func (c *Coordinator) Start(ctx context.Context, x outbox.Executor, params StartParams) (ID, error) {
	if err := params.validate(); err != nil {
		return ID{}, err
	}
	id := params.ID
	if id == (ID{}) {
		unique, err := c.outbox.NewID()
		if err != nil {
			return ID{}, err
		}
		id = ID(unique)
	}
	err := c.start(ctx, x, id, params)
	if errors.Is(err, outbox.ErrDuplicateID) {
		return id, fmt.Errorf("start the join %v: %w", id, ErrExists)
	}
	if err != nil {
		return ID{}, fmt.Errorf("start a join: %w", err)
	}
	c.logger.Info("Started a join", watermill.LogFields{
		"join_id": id.String(), "grouping_key": params.GroupingKey, "expected_steps": params.ExpectedSteps})
	return id, nil
}

func (c *Coordinator) start(ctx context.Context, x outbox.Executor, id ID, params StartParams) error {
	insert := func(ctx context.Context, x outbox.Executor) error {
		return c.inside.Run(ctx, x, "outbox_join_start", struct {
			ID          ID     `json:"id"`
			GroupingKey string `json:"grouping_key,omitempty"`
			Expected    int    `json:"expected,omitempty"`
			Quorum      int    `json:"quorum,omitempty"`
			FailFast    bool   `json:"fail_fast"`
			Metadata    string `json:"metadata,omitempty"`
		}{id, params.GroupingKey, params.ExpectedSteps, params.Quorum, params.FailFast, params.Metadata}, nil)
	}
	_, own := x.(*sql.DB)
	if x == nil {
		_, callers := outbox.TxFrom(ctx)
		own = !callers
	}
	if own || params.ID == (ID{}) {
		return insert(ctx, x)
	}
	return c.inside.InTx(ctx, x, insert) // a duplicate id must not end the caller's transaction
}

// Attach makes messages steps of a join: each step ends when its message is acknowledged or fails for good. Messages that
// are already steps stay as they are. A message that has ended counts at once. Either all are attached or none.
//
// It returns ErrNotFound, ErrEnded, ErrFull, ErrLogOnly, and ErrMessageNotFound if a message is not in the outbox. Publish
// new messages with Enqueue, or with a Publisher of this package, so that none can end before it is a step.
func (c *Coordinator) Attach(ctx context.Context, x outbox.Executor, id ID, messages ...outbox.MessageID) error {
	return c.attach(ctx, x, id, messages, attachArg{})
}

// AttachByReport makes messages steps that end only when they are reported, by ReportStepCompleted, ReportStepFailed or
// Middleware: for messages that are handled elsewhere, behind a relay. They need not be in the outbox. Attach them in the
// transaction that publishes them, or set HeaderStepOf, because a report that arrives before its step exists does not count.
// It returns ErrNotFound, ErrEnded and ErrFull.
func (c *Coordinator) AttachByReport(ctx context.Context, x outbox.Executor, id ID, messages ...outbox.MessageID) error {
	return c.attach(ctx, x, id, messages, attachArg{ByReport: true})
}

// Enqueue inserts messages and makes them steps of a join in one transaction, so that none can end before it is a step. Give
// many to one call: on PostgreSQL each further call of a transaction for a join costs a microsecond or so more than the one
// before. It returns what outbox.Outbox.Enqueue and Attach return.
func (c *Coordinator) Enqueue(ctx context.Context, x outbox.Executor, id ID, messages ...outbox.Message) (ids []outbox.MessageID, err error) {
	err = c.inside.InTx(ctx, x, func(ctx context.Context, tx outbox.Executor) error {
		if ids, err = c.outbox.Enqueue(ctx, tx, messages...); err != nil {
			return err
		}
		return c.attach(ctx, tx, id, ids, attachArg{Fresh: true})
	})
	if err != nil {
		return nil, err
	}
	return ids, nil
}

type attachArg struct {
	ID       ID                 `json:"id"`
	Messages []outbox.MessageID `json:"messages"`
	ByReport bool               `json:"by_report"`
	Fresh    bool               `json:"fresh"` // inserted by this very transaction
}

// attach attaches in batches, all or none.
func (c *Coordinator) attach(ctx context.Context, x outbox.Executor, id ID, messages []outbox.MessageID, arg attachArg) error {
	if err := validateID(id); err != nil {
		return err
	}
	for _, m := range messages {
		if err := validateMessageID(m); err != nil {
			return err
		}
	}
	if len(messages) == 0 {
		return nil
	}
	arg.ID = id
	if len(messages) <= maxBatch {
		return c.attachBatch(ctx, x, messages, arg)
	}
	return c.inside.InTx(ctx, x, func(ctx context.Context, tx outbox.Executor) error {
		for from := 0; from < len(messages); from += maxBatch {
			if err := c.attachBatch(ctx, tx, messages[from:min(from+maxBatch, len(messages))], arg); err != nil {
				return err
			}
		}
		return nil
	})
}

func (c *Coordinator) attachBatch(ctx context.Context, x outbox.Executor, messages []outbox.MessageID, arg attachArg) error {
	arg.Messages = messages
	if err := c.change(ctx, x, "outbox_join_attach", arg); err != nil {
		return fmt.Errorf("attach to the join %v: %w", arg.ID, err)
	}
	for _, m := range messages {
		c.logger.Debug("Attached a message to a join", watermill.LogFields{"join_id": arg.ID.String(), "message_id": m.String()})
	}
	return nil
}

// maxBatch is the most rows that a statement touches.
const maxBatch = 1000

// ReportStepCompleted ends a step as completed; a step that has ended stays as it is. It is for steps of AttachByReport;
// those of Attach end with their messages. It returns ErrNotFound and ErrNotAStep.
func (c *Coordinator) ReportStepCompleted(ctx context.Context, x outbox.Executor, id ID, message outbox.MessageID) error {
	return c.report(ctx, x, id, message, false)
}

// ReportStepFailed does the same, and the step has failed.
func (c *Coordinator) ReportStepFailed(ctx context.Context, x outbox.Executor, id ID, message outbox.MessageID) error {
	return c.report(ctx, x, id, message, true)
}

func (c *Coordinator) report(ctx context.Context, x outbox.Executor, id ID, message outbox.MessageID, failed bool) error {
	if err := validateID(id); err != nil {
		return err
	}
	if err := validateMessageID(message); err != nil {
		return err
	}
	err := c.change(ctx, x, "outbox_join_report", reportArg{&id, message, failed})
	if err != nil {
		return fmt.Errorf("report a step of the join %v: %w", id, err)
	}
	return nil
}

type reportArg struct {
	ID      *ID              `json:"id,omitempty"` // nil: every join that has the message as a step
	Message outbox.MessageID `json:"message"`
	Failed  bool             `json:"failed"`
}

// Seal closes an open join: from then on it expects the steps that it has. It ends at once if all of them have ended. A join
// that is not open stays as it is. It returns ErrNotFound and ErrEnded.
func (c *Coordinator) Seal(ctx context.Context, x outbox.Executor, id ID) error {
	return c.end(ctx, x, "outbox_join_seal", "seal", id)
}

// Cancel ends a join as cancelled: waits for it take the failure path. Its steps still run, but no longer count. It returns
// ErrNotFound and ErrEnded.
func (c *Coordinator) Cancel(ctx context.Context, x outbox.Executor, id ID) error {
	return c.end(ctx, x, "outbox_join_cancel", "cancel", id)
}

func (c *Coordinator) end(ctx context.Context, x outbox.Executor, op, verb string, id ID) error {
	if err := validateID(id); err != nil {
		return err
	}
	err := c.change(ctx, x, op, struct {
		ID ID `json:"id"`
	}{id})
	if err != nil {
		return fmt.Errorf("%s the join %v: %w", verb, id, err)
	}
	return nil
}

// change runs an operation and turns a refusal into an error of this package.
func (c *Coordinator) change(ctx context.Context, x outbox.Executor, op string, arg any) error {
	_, err := c.inside.ChangeJoin(ctx, x, op, arg)
	return refused(err)
}

func validateID(id ID) error {
	if id == (ID{}) {
		return field.Bad("join id", "is empty; Start returns one")
	}
	return nil
}

func validateMessageID(id outbox.MessageID) error {
	if id == (outbox.MessageID{}) {
		return field.Bad("message id", "is empty")
	}
	return nil
}
