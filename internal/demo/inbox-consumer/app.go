package main

import (
	"context"
	"embed"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	wmmiddleware "github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/inbox"
	"github.com/incursa/watermill-outbox/internal/demo/stage"
)

//go:embed sql/*.sql
var tables embed.FS

// patience is how long the queue may take, on a slow server under load. It takes a second.
const patience = time.Minute

// An app is the service.
type app struct {
	*stage.Database
	*stage.Screen
	inbox  *inbox.Inbox
	logger watermill.LoggerAdapter

	// What the broker has delivered, and what of it was rolled back or refused.
	received, rolledBack, refused atomic.Int32
}

func newApp(ctx context.Context, db *stage.Database, screen *stage.Screen, logger watermill.LoggerAdapter) (*app, error) {
	config := inbox.Config{Dialect: db.Dialect, Table: inboxTable(db)}
	if err := inbox.Migrate(ctx, db.DB, config); err != nil { // in earnest your own migrations do, with inbox.MigrationSQL
		return nil, err
	}
	in, err := inbox.New(db.DB, config, logger)
	return &app{Database: db, Screen: screen, inbox: in, logger: logger}, err
}

func inboxTable(db *stage.Database) string { return db.Prefix + "_inbox" }

// receive has the broker deliver what the upstream sends, most of it more than once.
func (a *app) receive(ctx context.Context) error {
	// It waits for each acknowledgement, so that you can read what happens; nacked messages come again at once.
	broker := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, a.logger)
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 5 * time.Second}, a.logger)
	if err != nil {
		return err
	}
	// What no retry mends must not come again and again. Watermill has a middleware that puts it aside.
	aside, err := wmmiddleware.PoisonQueueWithFilter(broker, "refused", outbox.IsPermanent)
	if err != nil {
		return err
	}
	router.AddMiddleware(aside, a.watch)
	if err := errors.Join(a.bookPayments(router, broker), a.receiveParcels(router, broker)); err != nil {
		return err
	}
	err = routing(ctx, router, func() error { return a.deliver(ctx, broker, slices.Concat(sentOrders, sentParcels)) })
	return errors.Join(err, broker.Close())
}

// watch counts what comes, and says what goes wrong.
func (a *app) watch(next message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		a.received.Add(1)
		produced, err := next(msg)
		var mismatch *inbox.MismatchError
		switch {
		case errors.As(err, &mismatch):
			a.refused.Add(1)
			a.Say("  %s is refused and put aside: its id is known, with another content", msg.UUID)
		case err != nil:
			a.rolledBack.Add(1)
			a.Say("  %s fails: %v; all is rolled back, its mark too, and it comes again", msg.UUID, err)
		}
		return produced, err
	}
}

// A delivery is a message that comes several times.
type delivery struct {
	topic, uuid, content string
	times                int
}

// deliver does what the broker does.
func (a *app) deliver(ctx context.Context, broker message.Publisher, deliveries []delivery) error {
	for _, d := range deliveries {
		a.Say("%s (%s) is delivered, %s", d.uuid, d.content, []string{"", "once", "twice", "three times"}[d.times])
		for range d.times {
			if err := broker.Publish(d.topic, message.NewMessage(d.uuid, []byte(d.content))); err != nil {
				return err
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
	}
	return nil
}

// routing runs a router while f runs.
func routing(ctx context.Context, router *message.Router, f func() error) (err error) {
	routing, stop := context.WithCancel(ctx)
	ran := make(chan error, 1)
	go func() {
		defer stop()
		ran <- router.Run(routing)
	}()
	defer func() {
		stop()
		err = errors.Join(err, <-ran)
	}()
	select {
	case <-router.Running():
		return f()
	case <-routing.Done():
		return ctx.Err()
	}
}
