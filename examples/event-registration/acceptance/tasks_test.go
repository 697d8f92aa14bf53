package acceptance_test

import (
	"context"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/examples/event-registration/registration"
	"github.com/incursa/watermill-outbox/middleware"
)

// runTasks runs what a replica sends to itself, until stop is called.
func runTasks(t *testing.T, r *replica) (stop func()) {
	t.Helper()
	subscriber, err := outbox.NewSubscriber(r.db.DB, outbox.SubscriberConfig{Dialect: r.db.Dialect, HandlerLog: outbox.LogOff, UnhandledAfter: -1}, nil)
	require.NoError(t, err)
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	require.NoError(t, err)
	transaction, err := middleware.Transaction(r.db.DB, middleware.TransactionConfig{})
	require.NoError(t, err)
	router.AddMiddleware(middleware.Outcome)
	r.service.AddHandlers(router, subscriber, transaction)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- router.Run(ctx) }()
	<-router.Running()
	return func() {
		require.NoError(t, outbox.Drain(context.Background(), router, subscriber))
		cancel()
		require.NoError(t, <-ended)
	}
}

// A large event promotes in several transactions, and settles after all have been told that it is canceled.
func TestLong_ALargeEventIsPromotedAndSettledInParts(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		const people = 130
		f.snapshot(t, 1, 1, "open")
		for range people {
			f.in(t, joinOf(f, uuid.NewString()))
		}
		f.snapshot(t, 2, 0, "open")
		require.Equal(t, 101, f.requireBalanced(t).Active)
		stop := runTasks(t, f.one())
		require.Eventually(t, func() bool { return f.read(t).Active == people }, waitFor, tick)
		f.snapshot(t, 3, 0, "canceled")
		told := f.told(t) // which ends the steps of the join
		require.Eventually(t, func() bool { return f.read(t).Status == registration.EventSettled }, waitFor, tick)
		stop()
		require.Equal(t, registration.JoinEventCanceled, told[len(told)-1].Type)
		counts := map[string]int{}
		for _, m := range told {
			counts[m.Type]++
		}
		require.Equal(t, map[string]int{"join.confirmed": 1, "join.waitlisted": people - 1, "join.promoted": people - 1, "join.event_canceled": people}, counts)
		require.Equal(t, []string{registration.TypeEventSettled + " "}, types(f.told(t)))
	})
}
