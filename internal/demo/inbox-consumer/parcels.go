package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/inbox"
	"github.com/incursa/watermill-outbox/middleware"
)

var parcelIdentity = inbox.Identity{Source: "shop", Handler: "ship-parcel"}

func parcelKey(id string) inbox.Key {
	return inbox.Key{Source: parcelIdentity.Source, MessageID: id, Handler: parcelIdentity.Handler}
}

// receiveParcels adds a handler that only puts parcels into the queue: one short transaction, and the broker has its answer.
func (a *app) receiveParcels(router *message.Router, broker message.Subscriber) error {
	receive, err := a.inbox.Receive(parcelIdentity)
	if err != nil {
		return err
	}
	router.AddConsumerHandler("receive-parcels", "parcels", broker, receive)
	return nil
}

// sentParcels are what the upstream sends, and how often the broker delivers it.
var sentParcels = []delivery{
	{"parcels", "parcel-1", "1 Main Street", 2},
	{"parcels", "parcel-2", "Nowhere", 3},
	{"parcels", "parcel-3", "3 Main Street", 2},
}

// A courier does not know every address.
type courier struct {
	*app
	knowsNowhere atomic.Bool
	settled      chan struct{} // something has ended, or will be tried again
}

// shipLater works on the queue, with the retries, leases and dead letters of an outbox.
func (a *app) shipLater(ctx context.Context) (err error) {
	c := &courier{app: a, settled: make(chan struct{}, 1)}
	subscriber, err := inbox.NewSubscriber(a.DB, outbox.SubscriberConfig{
		Dialect: a.Dialect, Table: inboxTable(a.Database),
		MaxAttempts: 2, Backoff: outbox.ExponentialBackoff(100*time.Millisecond, time.Second), // shorter than in earnest
		Hooks: outbox.Hooks{OnSettle: c.settle},
	}, a.logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, subscriber.Close()) }()
	once, err := middleware.Inbox(a.inbox, parcelIdentity) // delivery from the queue is at least once, too
	if err != nil {
		return err
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 5 * time.Second}, a.logger)
	if err != nil {
		return err
	}
	router.AddMiddleware(middleware.Outcome, once)
	router.AddConsumerHandler(parcelIdentity.Handler, parcelIdentity.Handler, subscriber, c.ship)
	return routing(ctx, router, func() error { return c.shipAll(ctx) })
}

func (c *courier) shipAll(ctx context.Context) error {
	c.Say("each parcel is in the queue once, and the broker has nothing left; a worker starts")
	poison, err := c.await(ctx, "parcel-2", outbox.Failed)
	if err != nil {
		return err
	}
	c.Say("parcel-2 has failed: %s", poison.LastError)
	c.knowsNowhere.Store(true)
	requeued, err := c.inbox.Requeue(ctx, poison.Key)
	if err != nil {
		return err
	}
	c.Say("the courier finds out where that is; %d parcel is requeued", requeued)
	for _, id := range []string{"parcel-1", "parcel-2", "parcel-3"} {
		if _, err := c.await(ctx, id, outbox.Done); err != nil {
			return err
		}
	}
	return nil
}

// ship writes a shipment in the transaction of the inbox.
func (c *courier) ship(msg *message.Message) error {
	tx, _ := outbox.TxFrom(msg.Context())
	_, err := tx.ExecContext(msg.Context(), c.SQL(shipmentAddSQL), msg.UUID, string(msg.Payload))
	if err == nil && string(msg.Payload) == "Nowhere" && !c.knowsNowhere.Load() {
		err = errors.New("there is no such address")
	}
	if err != nil {
		c.Say("  %s fails: %v", msg.UUID, err)
		return err
	}
	c.Say("  %s is shipped to %s", msg.UUID, msg.Payload)
	return nil
}

func (c *courier) settle(outbox.SettleEvent) {
	select {
	case c.settled <- struct{}{}:
	default: // that has been said, and not yet been heard
	}
}

// await waits until a parcel has a status.
func (c *courier) await(ctx context.Context, id string, status outbox.Status) (inbox.Entry, error) {
	late := time.After(patience)
	for {
		entries, err := c.inbox.Get(ctx, parcelKey(id))
		if err != nil {
			return inbox.Entry{}, err
		}
		if len(entries) == 1 && entries[0].Status == status {
			return entries[0], nil
		}
		select {
		case <-c.settled:
		case <-late:
			return inbox.Entry{}, fmt.Errorf("%s is not %v within %v", id, status, patience)
		case <-ctx.Done():
			return inbox.Entry{}, ctx.Err()
		}
	}
}
