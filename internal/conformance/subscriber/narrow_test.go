package subscriber_test

import (
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
)

// While its handlers hold the only connection, a Subscriber is content with what it has. Once it can renew leases again it claims
// more, and does not wait for one of these handlers to end.
func TestTrap_AWindowThatWidensIsFilled(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		pool := f.DB.Reopen(t)
		pool.SetMaxOpenConns(1)
		book := suite.NewLogBook()
		claimTimeout := 100 * time.Millisecond // no claim waits for the connection until it is free
		if f.Slow() {
			claimTimeout = 5 * time.Second
		}
		s := f.SubscriberOn(pool.DB, book, suite.LeaseOf(shortLease), func(c *outbox.SubscriberConfig) {
			c.MaxInFlight, c.ClaimTimeout = 4, claimTimeout
		})
		messages := f.Subscribe(s, "orders")
		f.EnqueueN("orders", 2)
		held := f.ReceiveN(messages, 2)
		conn, err := pool.Conn(f.Context())
		f.NoError(err)
		f.Await(book, "ERROR", "hold all connections")
		f.EnqueueN("orders", 1) // which wakes the claim, and there is no room
		f.NoError(conn.Close())
		f.Receive(messages).Ack()
		for _, msg := range held {
			msg.Ack()
		}
	})
}
