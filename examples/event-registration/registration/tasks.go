package registration

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
)

// AddHandlers adds what the service sends to itself to a router whose first middleware is Outcome, with a subscriber of its
// outbox. transaction is that of package middleware, for each handler.
func (s *Service) AddHandlers(router *message.Router, subscriber message.Subscriber, transaction message.HandlerMiddleware) {
	for topic, f := range map[string]func(context.Context, *sql.Tx, task) error{
		topicPromote: s.promoteMore,
		topicOffer:   s.expire,
		topicSettled: s.settle,
	} {
		router.AddConsumerHandler(topic, topic, subscriber, func(msg *message.Message) error {
			var t task
			if err := json.Unmarshal(msg.Payload, &t); err != nil {
				return outbox.Permanent(fmt.Errorf("read the task: %w", err))
			}
			tx, ok := outbox.TxFrom(msg.Context())
			if !ok {
				return outbox.ErrTxRequired
			}
			return f(msg.Context(), tx, t)
		}).AddMiddleware(transaction)
	}
	s.joins.AddWaitHandler(router, subscriber)
}

// promoteMore goes on where a transaction has promoted as many as it may.
func (s *Service) promoteMore(ctx context.Context, tx *sql.Tx, t task) error {
	c, err := s.begin(ctx, tx, t.EventID)
	if err != nil {
		return err
	}
	if err := c.promote(ctx); err != nil {
		return err
	}
	return c.finish(ctx)
}

var errEarly = errors.New("the offer has not expired yet")

// expire takes back a seat that was offered and not taken. Whoever has joined again since has another number.
func (s *Service) expire(ctx context.Context, tx *sql.Tx, t task) error {
	c, err := s.begin(ctx, tx, t.EventID)
	if err != nil {
		return err
	}
	r, found, err := s.readRegistration(ctx, tx, t.EventID, t.UserID)
	if err != nil {
		return err
	}
	if !found || r.Status != Active || r.Number != t.Number || r.OfferUntil == 0 {
		return nil
	}
	if r.OfferUntil > c.now {
		return errEarly
	}
	_, err = c.remove(ctx, r, Expired, JoinExpired, "")
	return err
}

// settle follows the last notification of a canceled event.
func (s *Service) settle(ctx context.Context, tx *sql.Tx, t task) error {
	c, err := s.begin(ctx, tx, t.EventID)
	if err != nil {
		return err
	}
	if c.event.Status != EventCanceled {
		return nil
	}
	c.event.Status = EventSettled
	if err := c.tell(TypeEventSettled, Registration{}, ""); err != nil {
		return err
	}
	return c.finish(ctx)
}
