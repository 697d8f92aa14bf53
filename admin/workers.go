package admin

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"time"
)

// A Worker is what claims and ends messages, by its WorkerName: usually the Subscriber of a process.
type Worker struct {
	Name      string
	StartedAt time.Time // or when it was first seen
	SeenAt    time.Time // its last heartbeat; zero for one that has none, such as a call of Outbox.Claim
	StoppedAt time.Time // when it has said that it ends; zero before
	Lives     bool      // whether its heartbeat is as recent as it should be
	Until     time.Time // until when that one counts; zero for one that has stopped, or has none
	Claims    int       // leases that it has now, among the 1,000 that run longest
	Messages  int       // that it holds with them, up to 100 of each
	Streams   int       // that these belong to
}

// Workers lists up to 1,000 workers, those that live first, then those that were seen last.
func (a *Admin) Workers(ctx context.Context) ([]Worker, error) {
	type row struct {
		Worker
		number, until int64
	}
	var rows []row
	err := a.call(ctx, "outbox_worker_list", struct {
		Limit  int `json:"limit"`
		Leases int `json:"leases"`
		Sample int `json:"sample"`
	}{maxBatch, maxBatch, 100}, func(r *sql.Rows) error {
		var w row
		var started, seen, stopped, now sql.NullInt64
		err := r.Scan(&w.number, &w.Name, &started, &seen, &w.until, &stopped, &w.Claims, &w.Messages, &w.Streams, &now)
		w.StartedAt, w.SeenAt, w.StoppedAt, w.Lives = fromMillis(started), fromMillis(seen), fromMillis(stopped), w.until > now.Int64
		w.Until = time.UnixMilli(w.until).UTC()
		if w.SeenAt.IsZero() || !w.StoppedAt.IsZero() {
			w.Until = time.Time{}
		}
		if w.Name != operator {
			rows = append(rows, w)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(rows, func(a, b row) int { return cmp.Or(cmp.Compare(b.until, a.until), cmp.Compare(a.number, b.number)) })
	var workers []Worker
	// A call that lost a conflict was made again, and its first rows were read twice.
	for _, r := range slices.CompactFunc(rows, func(a, b row) bool { return a.number == b.number }) {
		workers = append(workers, r.Worker)
	}
	return workers, nil
}
