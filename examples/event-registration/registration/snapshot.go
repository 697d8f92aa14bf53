package registration

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/examples/event-registration/tracing"
	"github.com/incursa/watermill-outbox/join"
)

// A Snapshot is an event as the catalog has it, whole. Version grows with each change there.
type Snapshot struct {
	EventID       string `json:"event_id"`
	Version       int64  `json:"version"`
	Title         string `json:"title"`
	OrganizerID   string `json:"organizer_id"`
	Status        string `json:"status"` // open, closed or canceled
	Capacity      int    `json:"capacity"`
	WaitlistLimit int    `json:"waitlist_limit"` // -1 is unlimited
}

// Validate says what no retry can mend.
func (s Snapshot) Validate() error {
	switch {
	case s.EventID == "" || len(s.EventID) > 64:
		return fmt.Errorf("event_id has %d bytes, not 1 to 64", len(s.EventID))
	case s.Version < 1:
		return fmt.Errorf("version is %d, not positive", s.Version)
	case s.Status != EventOpen && s.Status != EventClosed && s.Status != EventCanceled:
		return fmt.Errorf("status is %q, not open, closed or canceled", s.Status)
	case s.Capacity < 0 || s.WaitlistLimit < -1:
		return fmt.Errorf("capacity is %d and waitlist_limit %d", s.Capacity, s.WaitlistLimit)
	case len(s.Title) > 200 || len(s.OrganizerID) > 64:
		return fmt.Errorf("title has %d bytes and organizer_id %d: at most 200 and 64", len(s.Title), len(s.OrganizerID))
	}
	return nil
}

// Apply takes over a snapshot, unless a later one was applied or the event is canceled for good, and reports whether it did.
func (s *Service) Apply(ctx context.Context, tx *sql.Tx, snapshot Snapshot) (bool, error) {
	if _, err := s.statements.Exec(ctx, tx, "event_insert", snapshot.EventID); err != nil {
		return false, err
	}
	c, err := s.begin(ctx, tx, snapshot.EventID)
	if err != nil {
		return false, err
	}
	if snapshot.Version <= c.event.Version || c.event.Status == EventCanceled || c.event.Status == EventSettled {
		return false, nil
	}
	e := &c.event
	e.Version, e.Title, e.OrganizerID, e.Status = snapshot.Version, snapshot.Title, snapshot.OrganizerID, snapshot.Status
	e.Capacity, e.WaitlistLimit = snapshot.Capacity, snapshot.WaitlistLimit
	if e.Status == EventCanceled {
		err = c.endAll(ctx)
	} else {
		err = c.promote(ctx)
	}
	if err != nil {
		return false, err
	}
	return true, c.finish(ctx)
}

// endAll ends all registrations of a canceled event. The messages that say so are the steps of a join: once all of them have
// left the outbox, the event is settled.
func (c *change) endAll(ctx context.Context) error {
	var everybody []Registration
	for _, status := range []Status{Active, Waitlisted} {
		some, err := c.listAll(ctx, status)
		if err != nil {
			return err
		}
		everybody = append(everybody, some...)
	}
	c.event.Active, c.event.Waiting = 0, 0
	if _, err := c.s.statements.Exec(ctx, c.tx, "registration_end_all", c.event.ID, c.now); err != nil {
		return err
	}
	if len(everybody) == 0 {
		return c.later(topicSettled, task{EventID: c.event.ID}, 0)
	}
	return c.tellAll(ctx, everybody)
}

func (c *change) listAll(ctx context.Context, status Status) (all []Registration, err error) {
	const page = 1000
	var after int64
	for {
		some, err := c.s.readRegistrations(ctx, c.tx, "registration_list", c.event.ID, string(status), after, page)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
		if len(some) < page {
			return all, nil
		}
		after = some[len(some)-1].Number
	}
}

func (c *change) tellAll(ctx context.Context, everybody []Registration) error {
	joins := c.s.joins
	id, err := joins.Start(ctx, c.tx, join.StartParams{ExpectedSteps: len(everybody), GroupingKey: c.event.ID})
	if err != nil {
		return err
	}
	steps := make([]outbox.Message, 0, len(everybody))
	for _, r := range everybody {
		step, err := c.message(JoinEventCanceled, r, "")
		if err != nil {
			return err
		}
		steps = append(steps, step)
	}
	tracing.Carry(ctx, steps)
	if _, err := joins.Enqueue(ctx, c.tx, id, steps...); err != nil {
		return err
	}
	settled, err := json.Marshal(task{EventID: c.event.ID})
	if err != nil {
		return err
	}
	_, err = joins.EnqueueWait(ctx, c.tx, join.Wait{Join: id, OnComplete: join.Continuation{Topic: topicSettled, Payload: settled}})
	return err
}
