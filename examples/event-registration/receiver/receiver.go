// Package receiver takes messages from a queue of the broker into an inbox, and handles them from there: each once, in order
// by event, with retries and dead letters in the database.
package receiver

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	watermillmiddleware "github.com/ThreeDotsLabs/watermill/message/router/middleware"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/examples/event-registration/broker"
	"github.com/incursa/watermill-outbox/examples/event-registration/database"
	"github.com/incursa/watermill-outbox/examples/event-registration/metrics"
	"github.com/incursa/watermill-outbox/inbox"
	"github.com/incursa/watermill-outbox/middleware"
)

// A Receiver is a queue of the broker and its inbox.
type Receiver struct {
	db         *database.Database
	queue      string
	inbox      *inbox.Inbox
	subscriber *outbox.Subscriber
	metrics    *metrics.Metrics
	logger     watermill.LoggerAdapter
}

// New returns a receiver for a queue of the broker, and creates its inbox in the table that the subscriber's configuration names.
func New(ctx context.Context, db *database.Database, queue string, handle outbox.SubscriberConfig, m *metrics.Metrics, logger watermill.LoggerAdapter) (*Receiver, error) {
	config := inbox.Config{Dialect: db.Dialect, Table: handle.Table}
	if err := inbox.Migrate(ctx, db.DB, config); err != nil {
		return nil, err
	}
	in, err := inbox.New(db.DB, config, logger)
	if err != nil {
		return nil, err
	}
	handle.OnStreamFailure = outbox.DeadLetter // it holds up nothing: handlers go by versions, and tell what is late
	subscriber, err := inbox.NewSubscriber(db.DB, handle, logger)
	return &Receiver{db: db, queue: queue, inbox: in, subscriber: subscriber, metrics: m, logger: logger}, err
}

// A Handle does what a message asks for, in a transaction that is committed with the end of the message.
type Handle[T any] func(ctx context.Context, tx *sql.Tx, msg *message.Message, payload T) error

// AddTo adds both steps to a router whose first middleware is Outcome: from the broker into the inbox, and from there to
// handle. What is no T with an id goes to the broker's dead letters, or where it has none, to those of the inbox.
func AddTo[T any](r *Receiver, router *message.Router, b *broker.Broker, handle Handle[T]) error {
	receive, err := r.inbox.Receive(inbox.Identity{Source: r.queue, Handler: r.queue})
	if err != nil {
		return err
	}
	transaction, err := middleware.Transaction(r.db.DB, middleware.TransactionConfig{})
	if err != nil {
		return err
	}
	topic, subscriber := b.Subscription(r.queue)
	// A message is tried again where it is: given back, it would come behind its successors.
	retry := watermillmiddleware.Retry{MaxRetries: math.MaxInt32, InitialInterval: 50 * time.Millisecond, Multiplier: 2, MaxInterval: 2 * time.Second, Logger: r.logger}
	router.AddConsumerHandler("receive "+r.queue, topic, subscriber, func(msg *message.Message) error {
		_, why := read[T](msg)
		if why == nil {
			err := receive(msg)
			if !hopeless(err) {
				return err
			}
			why = err
		}
		err := b.Bury(r.queue, msg, why)
		if errors.Is(err, broker.ErrNoDeadLetters) {
			return receive(msg)
		}
		if err == nil {
			r.metrics.Unreadable(r.queue)
		}
		return err
	}).AddMiddleware(retry.Middleware)
	router.AddConsumerHandler("handle "+r.queue, r.queue, r.subscriber, func(msg *message.Message) error {
		payload, err := read[T](msg)
		if err != nil {
			return outbox.Permanent(err)
		}
		tx, ok := outbox.TxFrom(msg.Context())
		if !ok {
			return outbox.ErrTxRequired
		}
		return handle(msg.Context(), tx, msg, payload)
	}).AddMiddleware(transaction)
	return nil
}

func read[T any](msg *message.Message) (payload T, err error) {
	if msg.UUID == "" {
		return payload, errors.New("the message has no id: " + msg.Metadata.Get(broker.HeaderWhy))
	}
	if err := json.Unmarshal(msg.Payload, &payload); err != nil {
		return payload, fmt.Errorf("read the message: %w", err)
	}
	return payload, nil
}

// hopeless reports whether the inbox will never take a message: its id is known with another payload, or nothing can store it.
func hopeless(err error) bool {
	var mismatch *inbox.MismatchError
	var field *outbox.FieldError
	return outbox.IsPermanent(err) || errors.As(err, &mismatch) || errors.As(err, &field)
}

// Queue is the name of the broker's queue.
func (r *Receiver) Queue() string { return r.queue }

// Redrive gives all dead letters of the inbox another chance, and returns how many there were.
func (r *Receiver) Redrive(ctx context.Context) (int, error) {
	return r.inbox.Queue().Requeue(ctx, outbox.RequeueParams{All: true})
}

// DeadLetters lists what has failed for good.
func (r *Receiver) DeadLetters(ctx context.Context) ([]outbox.Record, error) {
	return r.inbox.Queue().Failed(ctx, outbox.ListParams{})
}

// Subscriber is to be closed.
func (r *Receiver) Subscriber() *outbox.Subscriber { return r.subscriber }
