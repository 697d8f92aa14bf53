package registration

import (
	"context"
	"database/sql"
)

// A Ban keeps a user out of an event. ExpiresAt 0 is for ever.
type Ban struct {
	EventID   string
	UserID    string
	Reason    string
	BannedBy  string
	CreatedAt int64
	ExpiresAt int64
}

// moderate locks an event for somebody who may moderate it.
func (s *Service) moderate(ctx context.Context, tx *sql.Tx, event string, by Actor) (*change, error) {
	c, err := s.begin(ctx, tx, event)
	if err != nil {
		return nil, err
	}
	if !by.Moderates(&c.event) {
		return nil, ErrForbidden
	}
	return c, nil
}

// Kick ends a user's registration; the user may join again. It returns ErrEventNotFound, ErrForbidden, ErrNotRegistered or
// ErrAlreadyReached.
func (s *Service) Kick(ctx context.Context, tx *sql.Tx, event, user, reason string, by Actor) (Registration, error) {
	c, err := s.moderate(ctx, tx, event, by)
	if err != nil {
		return Registration{}, err
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
	return c.remove(ctx, r, Rejected, JoinKicked, reason)
}

// Ban ends a user's registration, if there is one, and keeps the user out. A new ban replaces an old one. It returns
// ErrEventNotFound or ErrForbidden.
func (s *Service) Ban(ctx context.Context, tx *sql.Tx, ban Ban, by Actor) (Ban, error) {
	c, err := s.moderate(ctx, tx, ban.EventID, by)
	if err != nil {
		return ban, err
	}
	r, _, err := s.readRegistration(ctx, tx, ban.EventID, ban.UserID)
	if err != nil {
		return ban, err
	}
	ban.BannedBy, ban.CreatedAt = by.UserID, c.now
	if _, err := s.statements.Exec(ctx, tx, "ban_delete", ban.EventID, ban.UserID); err != nil {
		return ban, err
	}
	if _, err := s.statements.Exec(ctx, tx, "ban_insert", ban.EventID, ban.UserID, ban.Reason, ban.BannedBy, ban.CreatedAt, ban.ExpiresAt); err != nil {
		return ban, err
	}
	if r.live() {
		_, err := c.remove(ctx, r, Rejected, JoinBanned, ban.Reason)
		return ban, err
	}
	if err := c.tell(JoinBanned, Registration{UserID: ban.UserID}, ban.Reason); err != nil {
		return ban, err
	}
	return ban, c.finish(ctx)
}

// Unban lifts a ban. It returns ErrEventNotFound, ErrForbidden or ErrNotBanned.
func (s *Service) Unban(ctx context.Context, tx *sql.Tx, event, user string, by Actor) error {
	c, err := s.moderate(ctx, tx, event, by)
	if err != nil {
		return err
	}
	lifted, err := s.statements.Exec(ctx, tx, "ban_delete", event, user)
	if err != nil {
		return err
	}
	if lifted == 0 {
		return ErrNotBanned
	}
	if err := c.tell(JoinUnbanned, Registration{UserID: user}, ""); err != nil {
		return err
	}
	return c.finish(ctx)
}
