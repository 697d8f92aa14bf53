package main

import (
	"context"
	"database/sql"
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/demo/stage"
)

// A shop is the application: it writes orders and publishes their messages.
type shop struct {
	*stage.Database
	publisher *outbox.Publisher
	published map[string]order // what was committed, by name
}

func openShop(db *stage.Database) (*shop, error) {
	publisher, err := outbox.NewPublisher(db.DB, outbox.PublisherConfig{
		Dialect:   db.Dialect,
		Table:     db.Table(),
		RequireTx: true, // a Publish outside a transaction is a mistake here
	}, nil)
	if err != nil {
		return nil, err
	}
	return &shop{Database: db, publisher: publisher, published: map[string]order{}}, nil
}

// place writes an order and publishes its message in one transaction. If pay fails, neither has ever been there.
func (s *shop) place(ctx context.Context, o order, pay func() error) error {
	err := outbox.InTx(ctx, s.DB, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, s.SQL(orderAddSQL), o.name, o.topic); err != nil {
			return err
		}
		msg := message.NewMessageWithContext(ctx, o.name, o.payload) // the context carries the transaction
		if err := s.publisher.Publish(o.topic, msg); err != nil {
			return err
		}
		return pay()
	})
	if err == nil {
		s.published[o.name] = o
	}
	return err
}

var errDeclined = errors.New("the card was declined")

func paid() error     { return nil }
func declined() error { return errDeclined }
