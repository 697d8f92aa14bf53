package registration

import (
	"context"
	"database/sql"
)

// Join registers a user: with a seat if there is one and nobody waits for it, and else on the waitlist. Joining again takes
// a seat that was offered. It returns ErrEventNotFound, ErrEventClosed, ErrBanned, ErrAlreadyReached or ErrEventFull.
func (s *Service) Join(ctx context.Context, tx *sql.Tx, event, user string) (Registration, error) {
	c, err := s.begin(ctx, tx, event)
	if err != nil {
		return Registration{}, err
	}
	if c.event.Status != EventOpen {
		return Registration{}, ErrEventClosed
	}
	r, found, err := s.readRegistration(ctx, tx, event, user)
	if err != nil {
		return r, err
	}
	if found && r.Status == Active && r.OfferUntil > 0 {
		return c.takeOffer(ctx, r)
	}
	if found && r.live() {
		return r, ErrAlreadyReached
	}
	banned, err := c.banned(ctx, user)
	if err != nil {
		return r, err
	}
	if banned {
		return r, ErrBanned
	}
	return c.admit(ctx, user, found)
}

func (c *change) admit(ctx context.Context, user string, known bool) (Registration, error) {
	r := Registration{EventID: c.event.ID, UserID: user, Status: Active, CreatedAt: c.now, UpdatedAt: c.now}
	kind := JoinConfirmed
	if !c.event.hasSeat() || c.event.Waiting > 0 {
		if limit := c.event.WaitlistLimit; limit >= 0 && c.event.Waiting >= limit {
			return r, ErrEventFull
		}
		r.Status, kind = Waitlisted, JoinWaitlisted
	}
	c.event.LastNumber++
	r.Number = c.event.LastNumber
	statement := "registration_insert"
	if known {
		statement = "registration_save"
	}
	if _, err := c.s.statements.Exec(ctx, c.tx, statement, r.values()...); err != nil {
		return r, err
	}
	c.count(r.Status, +1)
	if err := c.tell(kind, r, ""); err != nil {
		return r, err
	}
	return r, c.finish(ctx)
}

func (c *change) takeOffer(ctx context.Context, r Registration) (Registration, error) {
	r.OfferUntil, r.UpdatedAt = 0, c.now
	if err := c.save(ctx, r); err != nil {
		return r, err
	}
	if err := c.tell(JoinConfirmed, r, ""); err != nil {
		return r, err
	}
	return r, c.finish(ctx)
}

func (c *change) banned(ctx context.Context, user string) (bool, error) {
	var bans int
	_, err := c.s.statements.Row(ctx, c.tx, "ban_read", []any{c.event.ID, user, c.now}, []any{&bans})
	return bans > 0, err
}

// Cancel ends a user's registration. It returns ErrEventNotFound, ErrEventClosed if the event is canceled, ErrNotRegistered
// or ErrAlreadyReached.
func (s *Service) Cancel(ctx context.Context, tx *sql.Tx, event, user string) (Registration, error) {
	c, err := s.begin(ctx, tx, event)
	if err != nil {
		return Registration{}, err
	}
	if c.event.Status == EventCanceled || c.event.Status == EventSettled {
		return Registration{}, ErrEventClosed
	}
	r, found, err := s.readRegistration(ctx, tx, event, user)
	switch {
	case err != nil:
		return r, err
	case !found:
		return r, ErrNotRegistered
	case !r.live():
		return r, ErrAlreadyReached
	}
	return c.remove(ctx, r, Canceled, JoinCanceled, "")
}

// remove ends a registration, tells of it, and gives a seat that became free to the next.
func (c *change) remove(ctx context.Context, r Registration, to Status, kind, reason string) (Registration, error) {
	if err := c.move(ctx, &r, to); err != nil {
		return r, err
	}
	if err := c.tell(kind, r, reason); err != nil {
		return r, err
	}
	if err := c.promote(ctx); err != nil {
		return r, err
	}
	return r, c.finish(ctx)
}
