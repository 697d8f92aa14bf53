package outbox

import (
	"context"
	"database/sql"
	"time"

	"github.com/incursa/watermill-outbox/internal/engine"
)

// work settles and claims in one transaction and, on a server, in one round trip: a worker needs both in every iteration. It
// is not retried: after a lost conflict, the worker settles and claims separately.
func (o *Outbox) work(ctx context.Context, x Executor, settlements []Settlement, options settleOptions, params ClaimParams) (result settled, claimed []Claimed, err error) {
	params.setDefaults()
	if err := params.validate(); err != nil {
		return settled{}, nil, err
	}
	started := time.Now()
	settle := o.settleArg(x, settlements, options)
	settle.Along = true
	var rows workRows
	err = o.engine.Together(ctx, x, opWork, func() { rows = workRows{} }, rows.scan,
		engine.Part{Operation: opSettle, Arg: settle, Scan: rows.scanCount},
		engine.Part{Operation: opClaim, Arg: o.claimArg(params), Scan: rows.scanClaimed})
	if err != nil {
		rows = workRows{}
	} else {
		result, err = o.readSettled(ctx, x, settlements, rows.counts)
	}
	for i := range rows.claimed {
		rows.claimed[i].Receipt.Owner = params.Owner
	}
	claimed, err = o.took(ctx, params, rows.claimed, started, err)
	return result, claimed, err
}

// workRows are the rows that settling and claiming returned.
type workRows struct {
	counts  []countRow
	claimed []Claimed
}

// opWork returns a result of opSettle and one of opClaim, or a single result with rows of both, which differ in their first
// column.
const (
	countColumns = 7
	claimColumns = 13
)

func (w *workRows) scan(rows *sql.Rows) error {
	columns, err := rows.Columns()
	switch {
	case err != nil:
		return err
	case len(columns) == countColumns:
		return w.scanCount(rows)
	case len(columns) == claimColumns:
		return w.scanClaimed(rows)
	}
	var isMessage bool
	var r countRow
	var c Claimed
	var m messageColumns
	if err := rows.Scan(append([]any{&isMessage, &r.seq, &r.id, &r.topic, &r.status, &r.expected, &r.completed, &r.failed},
		m.destinations(&c.Message, &c.Receipt.Seq, &c.RetryCount, &m.stages, &m.claimed)...)...); err != nil {
		return err
	}
	if isMessage {
		c.fill(&m)
		w.claimed = append(w.claimed, c)
		return nil
	}
	w.counts = append(w.counts, r)
	return r.refusal()
}

func (w *workRows) scanCount(rows *sql.Rows) error {
	w.counts = append(w.counts, countRow{})
	return w.counts[len(w.counts)-1].scan(rows)
}

func (w *workRows) scanClaimed(rows *sql.Rows) error {
	w.claimed = append(w.claimed, Claimed{})
	return w.claimed[len(w.claimed)-1].scan(rows)
}
