package registration

import (
	"context"
	"database/sql"
)

// My returns a user's registration and, on the waitlist, its place there. It returns ErrEventNotFound or ErrNotRegistered.
func (s *Service) My(ctx context.Context, event, user string) (r Registration, place int, err error) {
	_, _, found, err := s.readEvent(ctx, s.db, "event_read", event)
	if err != nil {
		return r, 0, err
	}
	if !found {
		return r, 0, ErrEventNotFound
	}
	r, found, err = s.readRegistration(ctx, s.db, event, user)
	if err != nil {
		return r, 0, err
	}
	if !found {
		return r, 0, ErrNotRegistered
	}
	if r.Status == Waitlisted {
		_, err = s.statements.Row(ctx, s.db, "registration_place", []any{event, r.Number}, []any{&place})
	}
	return r, place, err
}

// Before is where a page of a user's registrations begins: after those with this time and event.
type Before struct {
	CreatedAt int64
	EventID   string
}

// Mine lists a user's registrations, the latest first; status is one of them, or empty for all.
func (s *Service) Mine(ctx context.Context, user string, status Status, before Before, limit int) ([]Registration, error) {
	return s.readRegistrations(ctx, s.db, "registration_mine", user, string(status), before.CreatedAt, before.EventID, limit)
}

// List lists who is active or waits, in order of their numbers, for whoever moderates the event. It returns ErrEventNotFound
// or ErrForbidden.
func (s *Service) List(ctx context.Context, event string, status Status, after int64, limit int, by Actor) ([]Registration, error) {
	if _, err := s.Stats(ctx, event, by); err != nil {
		return nil, err
	}
	return s.readRegistrations(ctx, s.db, "registration_list", event, string(status), after, limit)
}

// Event returns an event with its counters. It returns ErrEventNotFound.
func (s *Service) Event(ctx context.Context, id string) (Event, error) {
	e, _, found, err := s.readEvent(ctx, s.db, "event_read", id)
	if err == nil && !found {
		err = ErrEventNotFound
	}
	return e, err
}

// Stats returns an event with its counters, for whoever moderates it. It returns ErrEventNotFound or ErrForbidden.
func (s *Service) Stats(ctx context.Context, event string, by Actor) (Event, error) {
	e, err := s.Event(ctx, event)
	if err == nil && !by.Moderates(&e) {
		return Event{}, ErrForbidden
	}
	return e, err
}

// Events lists events in order of their ids, after the one given.
func (s *Service) Events(ctx context.Context, after string, limit int) (out []Event, err error) {
	err = s.statements.Rows(ctx, s.db, "event_list", []any{after, limit}, func(rows *sql.Rows) error {
		var (
			e   Event
			now int64
		)
		if err := rows.Scan(append(e.columns(), &now)...); err != nil {
			return err
		}
		out = append(out, e)
		return nil
	})
	return out, err
}
