package registration

import (
	"context"
	"database/sql"

	outbox "github.com/incursa/watermill-outbox"
)

// A Drift is an event whose counters were not what its rows say.
type Drift struct {
	Before, After Event
}

// Reconcile compares the counters of every event with its rows, an event a transaction, puts right what differs, and gives
// free seats to those who wait. It returns what differed.
func (s *Service) Reconcile(ctx context.Context) (drifts []Drift, err error) {
	const page = 100
	after := ""
	for {
		events, err := s.Events(ctx, after, page)
		if err != nil {
			return drifts, err
		}
		for _, e := range events {
			err := outbox.InTx(ctx, s.db.DB, func(ctx context.Context, tx *sql.Tx) error {
				drift, err := s.reconcile(ctx, tx, e.ID)
				if drift != nil {
					drifts = append(drifts, *drift)
				}
				return err
			})
			if err != nil {
				return drifts, err
			}
			after = e.ID
		}
		if len(events) < page {
			return drifts, nil
		}
	}
}

func (s *Service) reconcile(ctx context.Context, tx *sql.Tx, id string) (drift *Drift, err error) {
	c, err := s.begin(ctx, tx, id)
	if err != nil {
		return nil, err
	}
	before := c.event
	if _, err := s.statements.Row(ctx, tx, "event_count", []any{id}, []any{&c.event.Active, &c.event.Waiting}); err != nil {
		return nil, err
	}
	if c.event != before {
		drift = &Drift{Before: before, After: c.event}
	}
	if err := c.promote(ctx); err != nil {
		return drift, err
	}
	if c.event == before {
		return nil, nil
	}
	return drift, c.finish(ctx)
}
