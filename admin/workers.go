package admin

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"time"
)

// A Worker is a process that has claimed or ended messages, by its WorkerName.
type Worker struct {
	Name      string
	StartedAt time.Time // when it was first seen
	Claims    int       // leases that it has now
	Messages  int       // that it took with them
	Until     time.Time // when the last of them expires, unless it is renewed; zero without any
}

// Workers lists up to 1,000 workers, those that were seen first most recently before others.
func (a *Admin) Workers(ctx context.Context) ([]Worker, error) {
	var rows []Worker
	err := a.call(ctx, "outbox_workers", struct {
		Limit int `json:"limit"`
	}{maxBatch}, func(r *sql.Rows) error {
		var w Worker
		var started, until sql.NullInt64
		err := r.Scan(&w.Name, &started, &w.Claims, &w.Messages, &until)
		w.StartedAt, w.Until = fromMillis(started), fromMillis(until)
		if w.Name != operator {
			rows = append(rows, w)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(rows, func(a, b Worker) int { return cmp.Or(cmp.Compare(a.Name, b.Name), a.StartedAt.Compare(b.StartedAt)) })
	var workers []Worker
	for _, w := range slices.Compact(rows) {
		last := len(workers) - 1
		if last < 0 || workers[last].Name != w.Name { // one may have several rows, since no unique key makes workers wait
			workers = append(workers, w)
			continue
		}
		one := &workers[last]
		one.Claims, one.Messages = one.Claims+w.Claims, one.Messages+w.Messages
		if w.Until.After(one.Until) {
			one.Until = w.Until
		}
	}
	slices.SortFunc(workers, func(a, b Worker) int { return cmp.Or(b.StartedAt.Compare(a.StartedAt), cmp.Compare(a.Name, b.Name)) })
	return workers, nil
}
