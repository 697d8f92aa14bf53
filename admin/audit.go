package admin

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/field"
	"github.com/incursa/watermill-outbox/internal/seam"
)

// An AuditEntry says what an operator has done. It was committed with the first messages that it was done to; what came after
// them was added in the same way, so that an act that was interrupted is recorded as far as it came. outbox.JanitorConfig
// says how long entries are kept.
type AuditEntry struct {
	No        int64     // grows with time
	At        time.Time // when it began, by the database's clock
	By        string    // who did it: ActParams.By and the like
	Act       string    // such as "requeue" or "delay by 5m0s"
	Selection string    // to what, in words, up to 1,000 characters
	Affected  int       // how many messages or joins; 1 for a topic
}

// AuditParams select a page of entries.
type AuditParams struct {
	// Before is the No of the last entry of the page before. Defaults to 0: the latest entries.
	Before int64

	// Limit is the most entries to return, 1 to 1,000. Defaults to 100.
	Limit int
}

// Audit lists what operators have done, the latest first. It returns a *outbox.FieldError for bad parameters.
func (a *Admin) Audit(ctx context.Context, params AuditParams) (entries []AuditEntry, err error) {
	field.Default(&params.Limit, 100)
	switch {
	case params.Limit < 1 || params.Limit > maxBatch:
		return nil, field.Bad("AuditParams.Limit", "is not in the range 1 to %d", maxBatch)
	case params.Before < 0:
		return nil, field.Bad("AuditParams.Before", "is negative")
	}
	arg := struct {
		Before *int64 `json:"before,omitempty"`
		Limit  int    `json:"limit"`
	}{Limit: params.Limit}
	if params.Before > 0 {
		arg.Before = &params.Before
	}
	err = a.call(ctx, "outbox_audit_list", arg, func(rows *sql.Rows) error {
		var e AuditEntry
		var at sql.NullInt64
		err := rows.Scan(&e.No, &at, &e.By, &e.Act, &e.Selection, &e.Affected)
		e.At = fromMillis(at)
		entries = append(entries, e)
		return err
	})
	// A call that lost a conflict was made again, and its first rows were read twice.
	slices.SortFunc(entries, func(a, b AuditEntry) int { return cmp.Compare(b.No, a.No) })
	return slices.CompactFunc(entries, func(a, b AuditEntry) bool { return a.No == b.No }), err
}

// auditArg is an entry on the wire; No is nil until its first batch is committed.
type auditArg struct {
	No        *int64 `json:"no,omitempty"`
	By        string `json:"by"`
	Act       string `json:"act"`
	Selection string `json:"selection"`
	Affected  int    `json:"affected"`
}

// recorded does something and records it, in one transaction. It records nothing if nothing was done.
func (a *Admin) recorded(ctx context.Context, record *auditArg, do seam.Batch) (n int, err error) {
	var no int64
	err = a.run.InTx(ctx, a.outbox.DB(), func(ctx context.Context, x base.Executor) error {
		var err error
		if n, err = do(ctx, x); err != nil || n == 0 {
			return err
		}
		record.Affected = n
		return a.run.Run(ctx, x, "outbox_audit_add", record, func(rows *sql.Rows) error { return rows.Scan(&no) })
	})
	if err != nil {
		return 0, err
	}
	if n > 0 {
		record.No = &no
	}
	return n, nil
}

// maxSelection is in characters; the columns hold more.
const maxSelection = 1000

// named is how many ids or positions a selection names.
const named = 5

// selection says in words what was selected.
func (p *ActParams) selection() string {
	var parts []string
	add := func(format, value string) {
		if value != "" {
			parts = append(parts, fmt.Sprintf(format, value))
		}
	}
	if p.IDs != nil {
		var ids []string
		for _, id := range p.IDs[:min(named, len(p.IDs))] {
			ids = append(ids, id.String())
		}
		if len(p.IDs) > named {
			ids = append(ids, fmt.Sprintf("and %d more", len(p.IDs)-named))
		}
		parts = append(parts, strings.Join(ids, ", "))
	}
	if p.All {
		parts = append(parts, "all")
	}
	add("topic '%s'", p.Topic)
	add("error has '%s'", p.Error)
	add("UUID '%s'", p.UUID)
	add("correlation id '%s'", p.CorrelationID)
	add("stream '%s'", p.StreamKey)
	if !p.Since.IsZero() {
		add("since %s", p.Since.UTC().Format(time.RFC3339))
	}
	if !p.Until.IsZero() {
		add("until %s", p.Until.UTC().Format(time.RFC3339))
	}
	return cut(strings.Join(parts, ", "))
}

// cut is as much of a selection as an entry has room for.
func cut(selection string) string {
	text := []rune(selection)
	return string(text[:min(maxSelection, len(text))])
}
