package admin

import (
	"context"
	"database/sql"
	"slices"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/field"
)

// ActParams select messages to act on: by IDs, by the Filter, or All. Requeue and Discard are for dead letters, Cancel and
// Delay for ready messages; others are left alone.
type ActParams struct {
	Filter

	// IDs are the ids of messages. An empty list that is not nil selects none. It cannot be combined with another Filter
	// than Until. Defaults to nil: all that match the Filter.
	IDs []outbox.MessageID

	// All selects every dead letter, or every ready message. It is required if nothing else is set, and invalid otherwise.
	// Filter.Until may be set.
	All bool

	// By is who does it, for the record that Audit reads. Defaults to an empty name.
	By string

	// DryRun counts, and changes nothing. Defaults to false.
	DryRun bool

	// Progress is called after each batch. Defaults to nothing.
	Progress func(Result)
}

func (p *ActParams) check() error {
	if err := field.In("ActParams", p.validate()); err != nil {
		return err
	}
	chosen := p.Filter
	chosen.Until = time.Time{}
	switch {
	case p.States != nil:
		return field.Bad("ActParams.Filter.States", "is set, but each act is for messages in one state")
	case p.IDs != nil && !chosen.isZero():
		return field.Bad("ActParams.IDs", "is set together with a Filter; set one or the other")
	case p.All && (p.IDs != nil || !chosen.isZero()):
		return field.Bad("ActParams.All", "is set together with IDs or a Filter; set one or the other")
	case !p.All && p.IDs == nil && p.isZero():
		return field.Bad("ActParams.All", "is false, and neither IDs nor a Filter is set; set All to act on all of them")
	}
	return field.Text("ActParams.By", p.By)
}

// A Result says how far a call has come.
type Result struct {
	// Examined is how many messages were looked at, Matched how many of them match, and Done how many were requeued, discarded,
	// cancelled or delayed. Fewer are done than match if somebody else was faster, if a row is locked, or for discarded messages
	// if a pending join, the log or a blocked stream needs them.
	Examined, Matched, Done int

	// Until is when the call began, by the database's clock. Set Filter.Until to it to continue a call that was interrupted:
	// a message that was requeued and has failed again since is then not requeued a second time, and one that was published
	// since is neither cancelled nor delayed.
	Until time.Time
}

// An act is something to do to messages in a state.
type act struct {
	name  string // in the record
	state outbox.Status
	do    func(ctx context.Context, x base.Executor, ids []outbox.MessageID, until int64) (int, error)
}

// Requeue makes dead letters ready again, with all their attempts, those that failed first before others. LastError stays. A
// message that fails again during the call is left alone. The Result counts what was done even if there is an error. It
// returns a *outbox.FieldError for bad parameters.
func (a *Admin) Requeue(ctx context.Context, params ActParams) (Result, error) {
	return a.act(ctx, params, act{"requeue", outbox.Failed, a.change("outbox_requeue", new(int64), new(int64))})
}

// Discard deletes dead letters for good. It keeps those that a pending join or the log needs, and one that blocks its stream:
// resume the stream with Outbox.SkipHead first. The Result counts what was done even if there is an error. It returns a
// *outbox.FieldError for bad parameters.
func (a *Admin) Discard(ctx context.Context, params ActParams) (Result, error) {
	return a.act(ctx, params, act{"discard", outbox.Failed, a.change("outbox_purge", new(int64))})
}

// Cancel fails ready messages, whether they were tried before or not, with a LastError that says who cancelled them: they are
// dead letters, which Requeue brings back. Their joins count them as failed; in a stream, those behind them go on. A message
// that a worker has is left alone. The Result counts what was done even if there is an error. It returns a
// *outbox.FieldError for bad parameters.
func (a *Admin) Cancel(ctx context.Context, params ActParams) (Result, error) {
	return a.act(ctx, params, act{"cancel", outbox.Ready, func(ctx context.Context, x base.Executor, ids []outbox.MessageID, _ int64) (int, error) {
		return a.end(ctx, x, ids, "cancelled"+byWhom(params.By), false)
	}})
}

// DelayParams select ready messages, and say when they become due.
type DelayParams struct {
	ActParams

	// DueAt is the time from which on the messages may be claimed, by the database's clock; one in the past means now. Required,
	// unless Delay is set.
	DueAt time.Time

	// Delay is how long they wait from now on, by the database's clock. Required, unless DueAt is set.
	Delay time.Duration
}

func (p *DelayParams) check() error {
	switch {
	case p.Delay < 0:
		return field.Bad("DelayParams.Delay", "is negative; set DueAt to now for messages to become due")
	case p.DueAt.IsZero() == (p.Delay == 0):
		return field.Bad("DelayParams.Delay", "and DueAt: set one of them")
	case p.DueAt.UTC().Year() > lastYear || time.Now().Add(p.Delay).UTC().Year() > lastYear || !p.DueAt.IsZero() && p.DueAt.UnixMilli() < 0:
		return field.Bad("DelayParams.DueAt", "is not in the years 1970 to %d", lastYear)
	}
	return nil
}

// lastYear is the last that every database can store.
const lastYear = 9999

// Delay makes ready messages due at another time. A message of a stream also holds up those behind it. A message that a worker
// has is left alone. The Result counts what was done even if there is an error. It returns a *outbox.FieldError for bad
// parameters.
func (a *Admin) Delay(ctx context.Context, params DelayParams) (Result, error) {
	if err := params.check(); err != nil {
		return Result{}, err
	}
	arg := struct {
		IDs     []outbox.MessageID `json:"ids"`
		DueMS   *int64             `json:"due_ms,omitempty"`
		DelayMS int64              `json:"delay_ms"`
	}{DelayMS: params.Delay.Milliseconds()}
	name := "delay by " + params.Delay.String()
	if !params.DueAt.IsZero() {
		due := params.DueAt.UnixMilli()
		arg.DueMS, name = &due, "delay to "+params.DueAt.UTC().Format(time.RFC3339)
	}
	return a.act(ctx, params.ActParams, act{name, outbox.Ready, func(ctx context.Context, x base.Executor, ids []outbox.MessageID, _ int64) (n int, err error) {
		arg.IDs = ids
		err = a.run.Run(ctx, x, "outbox_delay", arg, func(rows *sql.Rows) error { return rows.Scan(&n) })
		return n, err
	}})
}

func (a *Admin) act(ctx context.Context, params ActParams, what act) (result Result, err error) {
	if err := params.check(); err != nil {
		return Result{}, err
	}
	w := worker{admin: a, params: params, act: what, record: auditArg{By: params.By, Act: what.name, Selection: params.selection()}}
	until, err := w.begin(ctx)
	if err != nil {
		return Result{}, err
	}
	if params.IDs != nil {
		return w.named(ctx, until)
	}
	err = a.each(ctx, what.state, params.Filter, func(s *step) error {
		if what.state == outbox.Failed { // the walk itself goes that far
			w.result.Until = s.until
		}
		w.result.Examined += s.examined
		return w.batch(ctx, s.ids(), s.end.until)
	})
	return w.result, err
}

// each walks all messages in a state that match: dead letters from the first that failed to the last that had when it began,
// others from the last that was published to the first.
func (a *Admin) each(ctx context.Context, state outbox.Status, filter Filter, f func(*step) error) error {
	op := "outbox_dead_scan"
	arg := filter.arg()
	arg.Scan = maxBatch
	if state != outbox.Failed {
		op, arg.Newest, arg.States = "outbox_list", true, []outbox.Status{state}
	}
	for {
		s, err := a.walk(ctx, op, arg)
		if err != nil {
			return err
		}
		if err := f(s); err != nil || s.examined < arg.Scan || op == "outbox_list" && arg.before(s.end) {
			return err
		}
		arg.continueAt(s.end)
	}
}

// A worker acts on batch after batch.
type worker struct {
	admin  *Admin
	params ActParams
	act    act
	record auditArg
	result Result
}

// begin notes when the call begins, and returns until when dead letters may have failed: a walk of one step over them says both.
func (w *worker) begin(ctx context.Context) (until int64, err error) {
	arg := w.params.arg()
	arg.Scan = 1
	s, err := w.admin.walk(ctx, "outbox_dead_scan", arg)
	if err != nil {
		return 0, err
	}
	w.result.Until = s.until
	return s.end.until, nil
}

// named acts on the messages with the given ids.
func (w *worker) named(ctx context.Context, until int64) (Result, error) {
	for ids := range slices.Chunk(w.params.IDs, maxBatch/10) {
		records, err := w.admin.outbox.Get(ctx, ids...)
		if err != nil {
			return w.result, err
		}
		var found []outbox.MessageID
		for _, r := range records {
			if r.Status == w.act.state {
				found = append(found, r.ID)
			}
		}
		w.result.Examined += len(ids)
		if err := w.batch(ctx, found, until); err != nil {
			return w.result, err
		}
	}
	return w.result, nil
}

func (w *worker) batch(ctx context.Context, ids []outbox.MessageID, until int64) error {
	w.result.Matched += len(ids)
	if len(ids) > 0 && !w.params.DryRun {
		n, err := w.admin.recorded(ctx, &w.record, func(ctx context.Context, x base.Executor) (int, error) { return w.act.do(ctx, x, ids, until) })
		w.result.Done += n
		if err != nil {
			return err
		}
	}
	if w.params.Progress != nil {
		w.params.Progress(w.result)
	}
	return nil
}

// change requeues or purges up to 1,000 messages, and returns how many. more takes what else the operation answers.
func (a *Admin) change(op string, more ...any) func(ctx context.Context, x base.Executor, ids []outbox.MessageID, until int64) (int, error) {
	return func(ctx context.Context, x base.Executor, ids []outbox.MessageID, until int64) (n int, err error) {
		err = a.run.Run(ctx, x, op, struct {
			IDs         []outbox.MessageID `json:"ids"`
			Until       int64              `json:"until"`
			Status      outbox.Status      `json:"status"`
			OlderThanMS int64              `json:"older_than_ms"`
			Limit       int                `json:"limit"`
		}{ids, until, outbox.Failed, 0, maxBatch}, func(rows *sql.Rows) error {
			return rows.Scan(append([]any{&n}, more...)...)
		})
		return n, err
	}
}

// end ends up to 1,000 messages that nobody holds: ready ones as failed, or, if they were replaced, failed ones as done.
func (a *Admin) end(ctx context.Context, x base.Executor, ids []outbox.MessageID, reason string, replaced bool) (int, error) {
	return a.run.ChangeJoin(ctx, x, "outbox_end", struct {
		IDs      []outbox.MessageID `json:"ids"`
		Worker   string             `json:"worker"`
		Reason   string             `json:"reason"`
		Replaced bool               `json:"replaced,omitempty"`
	}{ids, operator, reason, replaced})
}

// operator is the worker in the rows of messages that an operator ended.
const operator = "operator"

func byWhom(by string) string {
	if by == "" {
		return ""
	}
	return " by " + by
}
