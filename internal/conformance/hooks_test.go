package conformance

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	outbox "github.com/incursa/watermill-outbox"
)

// The hook is told of each delivery with its topic, how long its handler took, and what became of it.
func TestHooks_HandledDeliveries(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		handled := make(chan outbox.HandledEvent, 10)
		sub := f.subscriber(func(c *outbox.SubscriberConfig) {
			c.Store = "store"
			c.Hooks.OnHandled = func(e outbox.HandledEvent) { handled <- e }
		})
		messages := f.subscribe(sub, "orders")
		id := f.enqueue(outbox.Message{Topic: "orders"})[0]

		first := f.receive(messages)
		f.Equal(map[string]int{"orders": 1}, sub.InFlight())
		d, _ := outbox.DeliveryFrom(first.Context())
		refused := errors.New("refused")
		d.SetErr(refused)
		first.Nack()
		e := <-handled
		f.Positive(e.Took)
		f.Less(e.Took, patience)
		e.Took = 0
		f.Equal(outbox.HandledEvent{Store: "store", Topic: "orders", MessageID: id, Attempt: 1, Outcome: outbox.Retry, Err: refused}, e)

		f.receive(messages).Ack()
		e = <-handled
		e.Took = 0
		f.Equal(outbox.HandledEvent{Store: "store", Topic: "orders", MessageID: id, Attempt: 2, Outcome: outbox.Ack}, e)
		f.becomes(id, outbox.Done)
		f.Empty(sub.InFlight())
	})
}

// The hook is not called for a message that no handler has seen.
func TestHooks_WhatIsNotHandledIsNotTold(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		handled := make(chan outbox.HandledEvent, 10)
		sub := f.subscriber(func(c *outbox.SubscriberConfig) {
			c.Hooks.OnHandled = func(e outbox.HandledEvent) { handled <- e }
		})
		f.subscribe(sub, "orders") // and nobody reads it
		id := f.enqueue(outbox.Message{Topic: "orders"})[0]
		require.Eventually(t, func() bool { return sub.InFlight()["orders"] == 1 }, patience, time.Millisecond)
		f.NoError(sub.Close())
		f.Equal(int(outbox.Ready), f.row(id).status)
		f.Empty(handled)
	})
}
