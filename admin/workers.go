package admin

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"time"
)

// A Worker is a Subscriber, by its WorkerName, or whoever else has claimed or ended messages under that name.
type Worker struct {
	Name      string
	StartedAt time.Time // when it was first seen
	SeenAt    time.Time // its last heartbeat; zero for one that is no Subscriber
	StoppedAt time.Time // when it was closed; zero if it was not
	Alive     bool      // its next heartbeat is not overdue, by the database's clock

	// What it holds: leases, the messages in them, and the streams of these. Of leases of more than 1,000 messages, only so
	// many are looked at.
	Leases, Messages, Streams int
}

// Workers lists up to 1,000 workers by their name, those that are alive first.
func (a *Admin) Workers(ctx context.Context) ([]Worker, error) {
	byName := map[string]*Worker{}
	err := a.call(ctx, "outbox_worker_list", struct {
		Limit  int `json:"limit"`
		Leases int `json:"leases"`
		Sample int `json:"sample"`
	}{maxBatch, maxBatch, maxBatch}, func(rows *sql.Rows) error {
		w, err := scanWorker(rows)
		if err != nil || w.Name == operator {
			return err
		}
		if one := byName[w.Name]; one != nil { // no unique key makes workers wait, so a name may have several rows
			one.add(w)
		} else {
			byName[w.Name] = &w
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	workers := make([]Worker, 0, len(byName))
	for _, w := range byName {
		workers = append(workers, *w)
	}
	slices.SortFunc(workers, func(a, b Worker) int {
		if a.Alive != b.Alive {
			return map[bool]int{true: -1, false: 1}[a.Alive]
		}
		return cmp.Compare(a.Name, b.Name)
	})
	return workers, nil
}

func scanWorker(rows *sql.Rows) (w Worker, err error) {
	var number, livesUntil, now int64
	var started, seen, stopped sql.NullInt64
	err = rows.Scan(&number, &w.Name, &started, &seen, &livesUntil, &stopped, &w.Leases, &w.Messages, &w.Streams, &now)
	w.StartedAt, w.SeenAt, w.StoppedAt, w.Alive = fromMillis(started), fromMillis(seen), fromMillis(stopped), livesUntil > now
	return w, err
}

// add takes in what another row has of the same worker.
func (w *Worker) add(row Worker) {
	if row.SeenAt.After(w.SeenAt) {
		w.SeenAt, w.StoppedAt = row.SeenAt, row.StoppedAt
	}
	if row.StartedAt.Before(w.StartedAt) {
		w.StartedAt = row.StartedAt
	}
	w.Alive = w.Alive || row.Alive
	w.Leases, w.Messages, w.Streams = w.Leases+row.Leases, w.Messages+row.Messages, w.Streams+row.Streams
}
