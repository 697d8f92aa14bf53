package subscriber_test

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
)

// The hook is told of each delivery with its topic, how long its handler took, and what became of it.
func TestHooks_HandledDeliveries(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		handled := make(chan outbox.HandledEvent, 10)
		sub := f.Subscriber(func(c *outbox.SubscriberConfig) {
			c.Store = "store"
			c.Hooks.OnHandled = func(e outbox.HandledEvent) { handled <- e }
		})
		f.Empty(sub.InFlight())
		messages := f.Subscribe(sub, "orders")
		f.Equal(map[string]int{"orders": 0}, sub.InFlight())
		id := f.Enqueue(outbox.Message{Topic: "orders"})[0]

		first := f.Receive(messages)
		f.Equal(map[string]int{"orders": 1}, sub.InFlight())
		d, _ := outbox.DeliveryFrom(first.Context())
		refused := errors.New("refused")
		d.SetErr(refused)
		first.Nack()
		e := <-handled
		f.Positive(e.Took)
		f.Less(e.Took, suite.Patience)
		f.Less(e.Wait, suite.Patience)
		e.Took, e.Wait = 0, 0
		f.Equal(outbox.HandledEvent{Store: "store", Topic: "orders", MessageID: id, Attempt: 1, Outcome: outbox.Retry, Err: refused}, e)

		f.Receive(messages).Ack()
		e = <-handled
		f.Zero(e.Wait)
		e.Took = 0
		f.Equal(outbox.HandledEvent{Store: "store", Topic: "orders", MessageID: id, Attempt: 2, Outcome: outbox.Ack}, e)
		f.Becomes(id, outbox.Done)
		f.Equal(map[string]int{"orders": 0}, sub.InFlight())
	})
}

// A wait begins when a message is due. What was published is counted by topic.
func TestHooks_WaitsAndCounts(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		handled := make(chan outbox.HandledEvent, 10)
		published := make(chan outbox.PublishEvent, 10)
		hooks := outbox.Hooks{
			OnHandled: func(e outbox.HandledEvent) { handled <- e },
			OnPublish: func(e outbox.PublishEvent) { published <- e },
		}
		f.Outbox = f.NewOutbox(f.DB.DB, func(c *outbox.Config) { c.Hooks = hooks })
		due := time.Now().Add(-time.Hour)
		f.Enqueue(outbox.Message{Topic: "orders", DueAt: due}, outbox.Message{Topic: "parcels"}, outbox.Message{Topic: "orders", DueAt: due})
		e := <-published
		f.Equal([]string{"orders", "parcels"}, e.Topics)
		f.Equal([]int{2, 1}, e.Counts)

		sub := f.Subscriber(func(c *outbox.SubscriberConfig) { c.Hooks = hooks })
		f.Receive(f.Subscribe(sub, "orders")).Ack()
		f.Less((<-handled).Wait, suite.Patience, "what is due in the past waits from when it was enqueued")
	})
}

// The first read that finds nothing more is told too, so that the lag falls to 0.
func TestHooks_AnEmptyLogIsToldOnce(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		reads := make(chan outbox.GroupReadEvent, 10)
		s := f.GroupSubscriber(f.DB.DB, "group", suite.NewLogBook(), func(c *outbox.SubscriberConfig) {
			c.Hooks.OnGroupRead = func(e outbox.GroupReadEvent) { reads <- e }
		})
		_, err := f.LogOutbox().Enqueue(f.Context(), f.DB.DB, outbox.Message{UUID: "0", Topic: "orders"})
		f.NoError(err)
		f.Stamp()
		f.Receive(f.Subscribe(s, "orders")).Ack()
		f.Equal(1, (<-reads).Messages)
		last := <-reads
		f.Zero(last.Messages)
		f.Zero(last.Lag)
		f.NoError(s.Close())
		f.Empty(reads)
	})
}

// Logs name store, topic, group, attempt and outcome as metrics and traces do.
func TestLogsUseTheNamesOfTelemetry(t *testing.T) {
	forEach(t, func(_ *testing.T, f *fixture) {
		book := suite.NewLogBook()
		named := func(c *outbox.SubscriberConfig) {
			c.Store, c.HandlerLog, c.MaxHandlerTime = "shop", slog.LevelInfo, 20*time.Millisecond
		}
		_, err := f.LogOutbox().Enqueue(f.Context(), f.DB.DB, outbox.Message{UUID: "0", Topic: "events"})
		f.NoError(err)
		f.Stamp()
		f.Receive(f.Subscribe(f.GroupSubscriber(f.DB.DB, "mail", book, named), "events")).Ack()
		line := f.Await(book, "INFO", "Handling message")
		f.Equal([]any{"shop", "events", "mail", 1}, []any{line.Fields["store"], line.Fields["topic"], line.Fields["group"], line.Fields["attempt"]})

		f.EnqueueN("orders", 1)
		f.Receive(f.Subscribe(f.SubscriberOn(f.DB.DB, book, named), "orders")) // and never answers
		line = f.Await(book, "ERROR", "is taken from it")
		f.Equal([]any{"shop", "orders", 1, "retry"}, []any{line.Fields["store"], line.Fields["topic"], line.Fields["attempt"], line.Fields["outcome"]})
	})
}

// The hook is not called for a message that no handler has seen.
func TestHooks_WhatIsNotHandledIsNotTold(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		handled := make(chan outbox.HandledEvent, 10)
		sub := f.Subscriber(func(c *outbox.SubscriberConfig) {
			c.Hooks.OnHandled = func(e outbox.HandledEvent) { handled <- e }
		})
		f.Subscribe(sub, "orders") // and nobody reads it
		id := f.Enqueue(outbox.Message{Topic: "orders"})[0]
		require.Eventually(t, func() bool { return sub.InFlight()["orders"] == 1 }, suite.Patience, time.Millisecond)
		f.NoError(sub.Close())
		f.Equal(int(outbox.Ready), f.Row(id).Status)
		f.Empty(handled)
	})
}
