package main

import (
	"errors"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/inbox"
	"github.com/incursa/watermill-outbox/middleware"
)

var paymentIdentity = inbox.Identity{Source: "shop", Handler: "book-payment"}

// bookPayments adds a handler that works on orders as they are received. The inbox is the last of its middlewares.
func (a *app) bookPayments(router *message.Router, broker message.Subscriber) error {
	once, err := middleware.Inbox(a.inbox, paymentIdentity)
	if err != nil {
		return err
	}
	handler := router.AddHandler(paymentIdentity.Handler, "orders", broker, "receipts", &post{app: a}, a.bookPayment())
	handler.AddMiddleware(once)
	return nil
}

// sentOrders are what the upstream sends, and how often the broker delivers it. The last has the id of the first.
var sentOrders = []delivery{
	{"orders", "order-1", "30 EUR", 3},
	{"orders", "order-2", "20 EUR", 2},
	{"orders", "order-3", "10 EUR", 2},
	{"orders", "order-1", "9999 EUR", 1},
}

// bookPayment writes a payment in the transaction of the inbox, and returns a receipt, which the router publishes after
// the commit. For order-2 it fails once, when it has written already.
func (a *app) bookPayment() message.HandlerFunc {
	failed := false
	return func(msg *message.Message) ([]*message.Message, error) {
		tx, _ := outbox.TxFrom(msg.Context())
		_, err := tx.ExecContext(msg.Context(), a.SQL(paymentAddSQL), msg.UUID, string(msg.Payload))
		if err != nil {
			return nil, err
		}
		if msg.UUID == "order-2" && !failed {
			failed = true
			return nil, errors.New("the bank does not answer")
		}
		a.Say("  %s: %s are booked", msg.UUID, msg.Payload)
		return []*message.Message{message.NewMessage(msg.UUID, []byte("receipt over "+string(msg.Payload)))}, nil
	}
}

// A post is where receipts are published. That of order-3 it loses once, after the commit of its booking.
type post struct {
	*app
	mu   sync.Mutex
	seen map[string]bool
}

// Publish sends receipts.
func (p *post) Publish(_ string, receipts ...*message.Message) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.seen == nil {
		p.seen = map[string]bool{}
	}
	for _, r := range receipts {
		again := p.seen[r.UUID]
		p.seen[r.UUID] = true
		switch {
		case again:
			p.Say("  %s comes again: nothing is booked, and the inbox has its %s sent again", r.UUID, r.Payload)
		case r.UUID == "order-3":
			p.Say("  %s: its %s cannot be sent; the booking stands, and the message comes again", r.UUID, r.Payload)
			return errors.New("the post office is closed")
		default:
			p.Say("  %s: its %s is sent", r.UUID, r.Payload)
		}
	}
	return nil
}

// Close has nothing to close.
func (p *post) Close() error { return nil }
