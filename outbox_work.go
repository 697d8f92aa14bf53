package outbox

import (
	"context"
	"database/sql"
	"time"

	"github.com/incursa/watermill-outbox/internal/engine"
)

// A round is what a worker does in one call, with its results.
type round struct {
	settlements []Settlement
	options     settleOptions
	renewals    []Receipt // for the lease of the claim
	claim       ClaimParams

	settled   settled
	unrenewed []unrenewed
	claimed   []*Claimed
}

// work settles, renews and claims in one transaction and, on a server, in one round trip: a worker needs these in every iteration.
// It is not retried: after a lost conflict, the worker settles, renews and claims separately.
func (o *Outbox) work(ctx context.Context, x Executor, r *round) (err error) {
	r.claim.setDefaults()
	if err := r.claim.validate(); err != nil {
		return err
	}
	started := time.Now()
	settle := o.settleArg(x, r.settlements, r.options)
	settle.Along = true
	var renew any
	if len(r.renewals) > 0 {
		renew = newRenewArg(r.claim.Lease, r.renewals)
	}
	var rows workRows
	err = o.engine.Together(ctx, x, opWork, func() { rows = workRows{} }, rows.scan,
		engine.Part{Operation: opSettle, Arg: settle, Scan: rows.scanCount},
		engine.Part{Operation: opRenew, Arg: renew, Scan: rows.scanUnrenewed},
		engine.Part{Operation: opClaim, Arg: o.claimArg(r.claim), Scan: rows.scanClaimed})
	if err != nil {
		rows = workRows{}
	} else {
		r.settled, err = o.readSettled(x, r.settlements, rows.counts)
	}
	for i := range rows.claimed {
		rows.claimed[i].Receipt.Owner = r.claim.Owner
	}
	r.unrenewed = rows.unrenewed
	r.claimed, err = o.took(ctx, r.claim, rows.claimed, started, err)
	return err
}

// workRows are the rows that settling, renewing and claiming returned.
type workRows struct {
	counts    []countRow
	unrenewed []unrenewed
	claimed   []*Claimed

	row     *workRow // of a single result
	scanner *claimScanner
}

// A workRow is a row of a single result. It serves for all of them.
type workRow struct {
	*claimScanner
	kind  int
	count countRow
}

func newWorkRow() *workRow {
	r := new(workRow)
	n := &r.count
	r.claimScanner = newClaimScanner(&r.kind, &n.seq, &n.id, &n.topic, &n.status, &n.expected, &n.completed, &n.failed)
	return r
}

// opWork returns a result of each operation, or a single result with rows of all, which differ in their first column.
const (
	countColumns = 7
	renewColumns = 3
	claimColumns = 13
)

const (
	settledRow = iota
	unrenewedRow
	claimedRow
)

func (w *workRows) scan(rows *sql.Rows) error {
	columns, err := rows.Columns()
	switch {
	case err != nil:
		return err
	case len(columns) == countColumns:
		return w.scanCount(rows)
	case len(columns) == renewColumns:
		return w.scanUnrenewed(rows)
	case len(columns) == claimColumns:
		return w.scanClaimed(rows)
	}
	if w.row == nil {
		w.row = newWorkRow()
	}
	r := w.row
	if err := r.scan(rows); err != nil {
		return err
	}
	switch r.kind {
	case claimedRow:
		w.claimed = append(w.claimed, r.message())
		return nil
	case unrenewedRow:
		u := unrenewed{held: r.count.status.Int64 == 1}
		u.receipt.Seq = WorkItemID(r.count.seq)
		w.unrenewed = append(w.unrenewed, u)
		return w.unrenewed[len(w.unrenewed)-1].receipt.Owner.UnmarshalText([]byte(r.count.id))
	default:
		w.counts = append(w.counts, r.count)
		return r.count.refusal()
	}
}

func (w *workRows) scanCount(rows *sql.Rows) error {
	w.counts = append(w.counts, countRow{})
	return w.counts[len(w.counts)-1].scan(rows)
}

func (w *workRows) scanClaimed(rows *sql.Rows) error {
	if w.scanner == nil {
		w.scanner = newClaimScanner()
	}
	if err := w.scanner.scan(rows); err != nil {
		return err
	}
	w.claimed = append(w.claimed, w.scanner.message())
	return nil
}

func (w *workRows) scanUnrenewed(rows *sql.Rows) error {
	w.unrenewed = append(w.unrenewed, unrenewed{})
	return w.unrenewed[len(w.unrenewed)-1].scan(rows)
}
