package admin

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"time"
)

// Health says whether an outbox is being served. Counts stop at 10,000, and a time is zero if there is nothing to measure.
// Outbox.Topics says what is waiting.
type Health struct {
	Now time.Time // the database's clock

	Leases        int // claims of workers that hold messages now
	ExpiredLeases int // claims that nobody has given back, and that still hold something; of those after the first 100 this is assumed
	ExpiredSince  time.Time

	Failed                     int // dead letters
	OldestFailed, NewestFailed time.Time

	Unlogged      int       // messages without a position in the log
	UnloggedSince time.Time // when the first of them was published
	Position      int64     // the last position in the log
	LoggedAt      time.Time // when it was given
}

// Health measures in one call.
func (a *Admin) Health(ctx context.Context) (h Health, err error) {
	err = a.call(ctx, "outbox_health", struct {
		Counted int `json:"counted"`
		Looked  int `json:"looked"`
	}{countCap, 100}, func(rows *sql.Rows) error {
		var now, expired, oldest, newest, unlogged, logged sql.NullInt64
		err := rows.Scan(&now, &h.Leases, &h.ExpiredLeases, &expired, &h.Failed, &oldest, &newest, &h.Unlogged, &unlogged, &h.Position, &logged)
		h.Now, h.ExpiredSince, h.OldestFailed, h.NewestFailed = fromMillis(now), fromMillis(expired), fromMillis(oldest), fromMillis(newest)
		h.UnloggedSince, h.LoggedAt = fromMillis(unlogged), fromMillis(logged)
		return err
	})
	return h, err
}

// A Lease is a claim of a worker, and what it holds of one topic.
type Lease struct {
	Owner    string
	Worker   string
	Until    time.Time
	Topic    string // empty once it holds nothing
	Messages int    // of its first 100
}

// Leases lists up to 100 claims, with a row for each topic, those that run longest first.
func (a *Admin) Leases(ctx context.Context) (leases []Lease, err error) {
	err = a.call(ctx, "outbox_leases", struct {
		Limit  int `json:"limit"`
		Sample int `json:"sample"`
	}{100, 100}, func(rows *sql.Rows) error {
		var l Lease
		var worker, topic sql.NullString
		var until sql.NullInt64
		err := rows.Scan(&l.Owner, &worker, &until, &topic, &l.Messages)
		l.Worker, l.Topic, l.Until = worker.String, topic.String, fromMillis(until)
		leases = append(leases, l)
		return err
	})
	slices.SortFunc(leases, func(a, b Lease) int {
		return cmp.Or(b.Until.Compare(a.Until), cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.Topic, b.Topic))
	})
	return slices.Compact(leases), err
}

// A LogGroup is how far a consumer group has come in a topic of the log, or in the whole log.
type LogGroup struct {
	Group       string
	Topic       string // empty for the whole log
	Position    int64
	Behind      int           // messages that it has not passed, counted up to 10,000
	Lag         time.Duration // how long the first of them has been in the log
	Dead        int           // messages that it has given up, counted up to 10,000
	Attempts    int           // spent on the message that it is at
	LockedUntil time.Time     // while it has a reader
	Active      bool          // whether it has one now
}

// LogGroups lists the consumer groups of the log, by name.
func (a *Admin) LogGroups(ctx context.Context) ([]LogGroup, error) {
	var groups []LogGroup
	arg := struct {
		AfterGroup string `json:"after_group"`
		AfterTopic string `json:"after_topic"`
		Limit      int    `json:"limit"`
		Counted    int    `json:"counted"`
	}{Limit: 100, Counted: countCap}
	for {
		var page []LogGroup
		err := a.call(ctx, "outbox_log_groups", arg, func(rows *sql.Rows) error {
			var g LogGroup
			var next, locked, now sql.NullInt64
			err := rows.Scan(&g.Group, &g.Topic, &g.Position, &g.Behind, &next, &g.Dead, &locked, &g.Attempts, &now)
			g.LockedUntil = fromMillis(locked)
			g.Active = locked.Int64 > now.Int64
			if next.Valid {
				g.Lag = time.Duration(max(0, now.Int64-next.Int64)) * time.Millisecond
			}
			page = append(page, g)
			return err
		})
		if err != nil {
			return nil, err
		}
		slices.SortFunc(page, func(a, b LogGroup) int { return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Topic, b.Topic)) })
		groups = append(groups, slices.CompactFunc(page, func(a, b LogGroup) bool { return a.Group == b.Group && a.Topic == b.Topic })...)
		if len(page) < arg.Limit {
			return groups, nil
		}
		last := page[len(page)-1]
		arg.AfterGroup, arg.AfterTopic = last.Group, last.Topic
	}
}
