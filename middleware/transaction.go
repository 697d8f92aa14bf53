package middleware

import (
	"context"
	"database/sql"
	"errors"
	"slices"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/join"
)

// TransactionConfig configures Transaction.
type TransactionConfig struct {
	// Publisher publishes the messages that handlers return, in their transaction, on the topic of the router's handler. It
	// must be an outbox Publisher on the same database. Defaults to none; returning messages is then an error.
	Publisher *outbox.Publisher

	// Exempt lists further topics whose handlers make their own transactions; join.DefaultWaitTopic always is. Add
	// join.Config.WaitTopic if you have set it. Defaults to none.
	Exempt []string
}

// Transaction runs each handler in a transaction of db, the database of the Subscriber: what the handler writes, the
// messages that it publishes or returns, and the end of its own message are committed together, or none of them is. The
// effects of a message therefore happen once, however often it is delivered.
//
// The handler must use that transaction: outbox.TxFrom finds it in the message's context, and an outbox Publisher uses it
// without being told. If the handler returns an error or panics, everything is rolled back and the message is delivered
// again. Effects elsewhere are not rolled back. It must not call Delivery.SettleTx itself.
//
// The message's context is restored afterwards, so that Watermill's Retry, placed before Transaction, runs each try in a new
// transaction; after it, it would continue in one that has failed. Middlewares that change the messages a handler returns,
// such as Watermill's CorrelationID, go after it:
//
//	router.AddMiddleware(Outcome, retry.Middleware, transaction, wmmiddleware.CorrelationID)
//
// If the answer to the commit is lost (outbox.ErrUnknownOutcome), the message is nacked, which changes nothing if it was
// committed. Messages from subscribers other than an outbox's are handled in a transaction too, but may be handled again
// after it: use Inbox for them.
func Transaction(db *sql.DB, config TransactionConfig) (message.HandlerMiddleware, error) {
	if db == nil {
		return nil, base.ErrNilDB
	}
	config.Exempt = append([]string{join.DefaultWaitTopic}, config.Exempt...)
	return func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			if slices.Contains(config.Exempt, message.SubscribeTopicFromCtx(msg.Context())) {
				return next(msg)
			}
			return nil, config.run(db, next, msg)
		}
	}, nil
}

func (c TransactionConfig) run(db *sql.DB, next message.HandlerFunc, msg *message.Message) error {
	received := msg.Context()
	defer msg.SetContext(received)
	return outbox.InTx(received, db, func(ctx context.Context, tx *sql.Tx) error {
		msg.SetContext(ctx)
		produced, err := next(msg)
		if err != nil {
			return err
		}
		if err := c.publish(ctx, produced); err != nil {
			return err
		}
		if delivery, ok := outbox.DeliveryFrom(ctx); ok {
			return delivery.SettleTx(ctx, tx, outbox.Ack)
		}
		return nil
	})
}

func (c TransactionConfig) publish(ctx context.Context, produced []*message.Message) error {
	if len(produced) == 0 {
		return nil
	}
	topic := message.PublishTopicFromCtx(ctx)
	if topic == "" {
		return message.ErrOutputInNoPublisherHandler
	}
	if c.Publisher == nil {
		return outbox.Permanent(errors.New("middleware: the handler returned messages; set TransactionConfig.Publisher, or publish them in the handler"))
	}
	for _, p := range produced {
		p.SetContext(ctx)
	}
	return c.Publisher.Publish(topic, produced...)
}
