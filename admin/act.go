package admin

import (
	"context"
	"database/sql"
	"slices"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/field"
)

// ActParams select dead letters to requeue or discard: by IDs, by the Filter, or All.
type ActParams struct {
	Filter

	// IDs are the ids of messages. An empty list that is not nil selects none. It cannot be combined with another Filter
	// than Until. Defaults to nil: all that match the Filter.
	IDs []outbox.MessageID

	// All selects every dead letter. It is required if nothing else is set, and invalid otherwise. Filter.Until may be set.
	All bool

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
		return field.Bad("ActParams.Filter.States", "is set, but dead letters have only one state")
	case p.IDs != nil && !chosen.isZero():
		return field.Bad("ActParams.IDs", "is set together with a Filter; set one or the other")
	case p.All && (p.IDs != nil || !chosen.isZero()):
		return field.Bad("ActParams.All", "is set together with IDs or a Filter; set one or the other")
	case !p.All && p.IDs == nil && p.isZero():
		return field.Bad("ActParams.All", "is false, and neither IDs nor a Filter is set; set All to act on everything that has failed")
	}
	return nil
}

// A Result says how far a call has come.
type Result struct {
	// Examined is how many dead letters were looked at, Matched how many of them match, and Done how many were requeued or
	// discarded. Fewer are done than match if somebody else was faster, if a row is locked, or for discarded messages if a
	// pending join, the log or a blocked stream needs them.
	Examined, Matched, Done int

	// Until is when the call began, by the database's clock. Set Filter.Until to it to continue a call that was interrupted:
	// a message that was requeued and has failed again since is then not requeued a second time.
	Until time.Time
}

// Requeue makes dead letters ready again, with all their attempts, those that failed first before others. LastError stays. A
// message that fails again during the call is left alone. The Result counts what was done even if there is an error. It
// returns a *outbox.FieldError for bad parameters.
func (a *Admin) Requeue(ctx context.Context, params ActParams) (Result, error) {
	return a.act(ctx, params, "outbox_requeue")
}

// Discard deletes dead letters for good. It keeps those that a pending join or the log needs, and one that blocks its stream:
// resume the stream with Outbox.SkipHead first. The Result counts what was done even if there is an error. It returns a
// *outbox.FieldError for bad parameters.
func (a *Admin) Discard(ctx context.Context, params ActParams) (Result, error) {
	return a.act(ctx, params, "outbox_purge")
}

func (a *Admin) act(ctx context.Context, params ActParams, op string) (result Result, err error) {
	if err := params.check(); err != nil {
		return Result{}, err
	}
	w := worker{admin: a, params: params, op: op}
	if params.IDs != nil {
		return w.named(ctx)
	}
	err = a.eachFailed(ctx, params.Filter, func(s *step) error {
		w.result.Until = s.until
		w.result.Examined += s.examined
		return w.batch(ctx, s.ids(), s.end.until)
	})
	return w.result, err
}

// eachFailed walks all dead letters that match, from the first that failed to the last that had when it began.
func (a *Admin) eachFailed(ctx context.Context, filter Filter, f func(*step) error) error {
	arg := filter.arg()
	arg.Scan = maxBatch
	for {
		s, err := a.walk(ctx, "outbox_dead_scan", arg)
		if err != nil {
			return err
		}
		if err := f(s); err != nil || s.examined < arg.Scan {
			return err
		}
		arg.continueAt(s.end)
	}
}

// A worker acts on batch after batch.
type worker struct {
	admin  *Admin
	params ActParams
	op     string
	result Result
}

// named acts on the messages with the given ids. A walk of one step says until when they may have failed.
func (w *worker) named(ctx context.Context) (Result, error) {
	arg := w.params.arg()
	arg.Scan = 1
	s, err := w.admin.walk(ctx, "outbox_dead_scan", arg)
	if err != nil {
		return Result{}, err
	}
	w.result.Until = s.until
	for ids := range slices.Chunk(w.params.IDs, maxBatch/10) {
		records, err := w.admin.outbox.Get(ctx, ids...)
		if err != nil {
			return w.result, err
		}
		var failed []outbox.MessageID
		for _, r := range records {
			if r.Status == outbox.Failed {
				failed = append(failed, r.ID)
			}
		}
		w.result.Examined += len(ids)
		if err := w.batch(ctx, failed, s.end.until); err != nil {
			return w.result, err
		}
	}
	return w.result, nil
}

func (w *worker) batch(ctx context.Context, ids []outbox.MessageID, until int64) error {
	w.result.Matched += len(ids)
	if len(ids) > 0 && !w.params.DryRun {
		n, err := w.admin.change(ctx, w.op, ids, until)
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

// change requeues or purges up to 1,000 messages in one transaction, and returns how many.
func (a *Admin) change(ctx context.Context, op string, ids []outbox.MessageID, until int64) (n int, err error) {
	err = a.call(ctx, op, struct {
		IDs         []outbox.MessageID `json:"ids"`
		Until       int64              `json:"until"`
		Status      outbox.Status      `json:"status"`
		OlderThanMS int64              `json:"older_than_ms"`
		Limit       int                `json:"limit"`
	}{ids, until, outbox.Failed, 0, maxBatch}, func(rows *sql.Rows) error {
		var next int64
		return rows.Scan(&n, &next)
	})
	return n, err
}
