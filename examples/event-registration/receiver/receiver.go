// Package receiver takes messages from a queue of the broker into an inbox, and handles them from there: each once, in order
// by event, with retries and dead letters in the database.
package receiver

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/examples/event-registration/broker"
	"github.com/incursa/watermill-outbox/examples/event-registration/database"
	"github.com/incursa/watermill-outbox/inbox"
	"github.com/incursa/watermill-outbox/middleware"
)

// A Receiver is a queue of the broker and its inbox.
type Receiver struct {
	db         *database.Database
	queue      string
	inbox      *inbox.Inbox
	subscriber *outbox.Subscriber
}

// New returns a receiver for a queue of the broker, and creates its inbox.
func New(ctx context.Context, db *database.Database, queue, table string, logger watermill.LoggerAdapter) (*Receiver, error) {
	config := inbox.Config{Dialect: db.Dialect, Table: table}
	if err := inbox.Migrate(ctx, db.DB, config); err != nil {
		return nil, err
	}
	in, err := inbox.New(db.DB, config, logger)
	if err != nil {
		return nil, err
	}
	// A dead letter holds up nothing: handlers go by versions, and tell what is late.
	subscriber, err := inbox.NewSubscriber(db.DB, outbox.SubscriberConfig{
		Dialect: db.Dialect, Table: table, OnStreamFailure: outbox.DeadLetter, HandlerLog: outbox.LogOff,
	}, logger)
	return &Receiver{db: db, queue: queue, inbox: in, subscriber: subscriber}, err
}

// AddTo adds both steps to a router whose first middleware is Outcome. What handle writes in the transaction is committed with
// the end of the message. A payload that is not a T is a dead letter at once.
func AddTo[T any](r *Receiver, router *message.Router, b *broker.Broker, handle func(ctx context.Context, tx *sql.Tx, msg *message.Message, payload T) error) error {
	receive, err := r.inbox.Receive(inbox.Identity{Source: r.queue, Handler: r.queue})
	if err != nil {
		return err
	}
	transaction, err := middleware.Transaction(r.db.DB, middleware.TransactionConfig{})
	if err != nil {
		return err
	}
	topic, subscriber := b.Subscription(r.queue)
	router.AddConsumerHandler("receive "+r.queue, topic, subscriber, receive)
	router.AddConsumerHandler("handle "+r.queue, r.queue, r.subscriber, func(msg *message.Message) error {
		var payload T
		if err := json.Unmarshal(msg.Payload, &payload); err != nil {
			return outbox.Permanent(fmt.Errorf("read the message: %w", err))
		}
		tx, ok := outbox.TxFrom(msg.Context())
		if !ok {
			return outbox.ErrTxRequired
		}
		return handle(msg.Context(), tx, msg, payload)
	}).AddMiddleware(transaction)
	return nil
}

// Redrive gives all dead letters another chance, and returns how many there were.
func (r *Receiver) Redrive(ctx context.Context) (int, error) {
	return r.inbox.Queue().Requeue(ctx, outbox.RequeueParams{All: true})
}

// DeadLetters lists what has failed for good.
func (r *Receiver) DeadLetters(ctx context.Context) ([]outbox.Record, error) {
	return r.inbox.Queue().Failed(ctx, outbox.ListParams{})
}

// Subscriber is to be closed.
func (r *Receiver) Subscriber() *outbox.Subscriber { return r.subscriber }
