package registration

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/examples/event-registration/tracing"
)

// Topics of the outbox.
const (
	// TopicJoin carries all that happens to registrations, on one topic: the event's stream key keeps them in order.
	TopicJoin = "registration.join"

	topicPromote = "registration.promote"
	topicOffer   = "registration.offer"
	topicSettled = "registration.settled"
)

// HeaderType says what a message of TopicJoin tells, such as join.confirmed.
const HeaderType = "type"

// The messages of TopicJoin.
const (
	JoinConfirmed     = "join.confirmed"
	JoinWaitlisted    = "join.waitlisted"
	JoinPromoted      = "join.promoted"
	JoinCanceled      = "join.canceled"
	JoinExpired       = "join.expired"
	JoinKicked        = "join.kicked"
	JoinBanned        = "join.banned"
	JoinUnbanned      = "join.unbanned"
	JoinEventCanceled = "join.event_canceled"
	TypeEventSettled  = "event.settled"
)

// A Message is the payload on TopicJoin. Active and Waiting are the event's counters after it; Revision grows by one with
// each message of an event, so whoever keeps the counters of the highest one is right, whatever arrives late or twice.
type Message struct {
	Type     string `json:"type"`
	EventID  string `json:"event_id"`
	Title    string `json:"title"`
	UserID   string `json:"user_id,omitempty"`
	Number   int64  `json:"number,omitempty"`
	Reason   string `json:"reason,omitempty"`
	Active   int    `json:"active"`
	Waiting  int    `json:"waiting"`
	Revision int64  `json:"revision"`
}

// A change is an event under its lock, and what is to be told of it when all is done.
type change struct {
	s        *Service
	tx       *sql.Tx
	event    Event
	now      int64
	messages []outbox.Message
}

func (s *Service) begin(ctx context.Context, tx *sql.Tx, id string) (*change, error) {
	event, now, found, err := s.readEvent(ctx, tx, "event_lock", id)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, ErrEventNotFound
	}
	return &change{s: s, tx: tx, event: event, now: now}, nil
}

// finish writes the counters and the messages.
func (c *change) finish(ctx context.Context) error {
	if _, err := c.s.statements.Exec(ctx, c.tx, "event_save", c.event.values()...); err != nil {
		return err
	}
	if len(c.messages) == 0 {
		return nil
	}
	tracing.Carry(ctx, c.messages)
	_, err := c.s.outbox.Enqueue(ctx, c.tx, c.messages...)
	return err
}

// tell adds a message about a user of the event.
func (c *change) tell(kind string, r Registration, reason string) error {
	message, err := c.message(kind, r, reason)
	c.messages = append(c.messages, message)
	return err
}

func (c *change) message(kind string, r Registration, reason string) (outbox.Message, error) {
	c.event.Revision++
	payload, err := json.Marshal(Message{
		Type: kind, EventID: c.event.ID, Title: c.event.Title, UserID: r.UserID, Number: r.Number, Reason: reason,
		Active: c.event.Active, Waiting: c.event.Waiting, Revision: c.event.Revision,
	})
	return outbox.Message{
		UUID: watermill.NewUUID(), Topic: TopicJoin, StreamKey: c.event.ID,
		Headers: map[string]string{HeaderType: kind}, Payload: payload,
	}, err
}

// A task is the payload of messages that the service sends to itself.
type task struct {
	EventID string `json:"event_id"`
	UserID  string `json:"user_id,omitempty"`
	Number  int64  `json:"number,omitempty"`
}

func (c *change) later(topic string, t task, delay time.Duration) error {
	payload, err := json.Marshal(t)
	c.messages = append(c.messages, outbox.Message{UUID: watermill.NewUUID(), Topic: topic, Payload: payload, Delay: delay})
	return err
}

// move gives a registration its new status, and keeps the counters equal to the rows.
func (c *change) move(ctx context.Context, r *Registration, to Status) error {
	c.count(r.Status, -1)
	c.count(to, +1)
	r.Status, r.UpdatedAt, r.OfferUntil = to, c.now, 0
	return c.save(ctx, *r)
}

func (c *change) save(ctx context.Context, r Registration) error {
	_, err := c.s.statements.Exec(ctx, c.tx, "registration_save", r.values()...)
	return err
}

func (c *change) count(status Status, by int) {
	switch status {
	case Active:
		c.event.Active += by
	case Waitlisted:
		c.event.Waiting += by
	}
}

// promotions is the most that one transaction promotes: the rest follow in transactions of their own.
const promotions = 100

// promote gives free seats to those who have waited the longest.
func (c *change) promote(ctx context.Context) error {
	if c.event.Status != EventOpen || c.event.Waiting == 0 || !c.event.hasSeat() {
		return nil
	}
	n := promotions
	if c.event.Capacity > 0 {
		n = min(n, c.event.Capacity-c.event.Active)
	}
	next, err := c.s.readRegistrations(ctx, c.tx, "registration_list", c.event.ID, string(Waitlisted), int64(0), n)
	if err != nil {
		return err
	}
	for _, r := range next {
		if err := c.promoteOne(ctx, r); err != nil {
			return err
		}
	}
	if c.event.Waiting > 0 && c.event.hasSeat() {
		return c.later(topicPromote, task{EventID: c.event.ID}, 0)
	}
	return nil
}

func (c *change) promoteOne(ctx context.Context, r Registration) error {
	if err := c.move(ctx, &r, Active); err != nil {
		return err
	}
	if offer := c.s.config.OfferFor; offer > 0 {
		r.OfferUntil = c.now + offer.Milliseconds()
		if err := c.save(ctx, r); err != nil {
			return err
		}
		if err := c.later(topicOffer, task{EventID: r.EventID, UserID: r.UserID, Number: r.Number}, offer); err != nil {
			return err
		}
	}
	return c.tell(JoinPromoted, r, "")
}
