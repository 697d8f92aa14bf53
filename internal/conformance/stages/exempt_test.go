package stages_test

import (
	"context"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/inbox"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
	"github.com/incursa/watermill-outbox/join"
	"github.com/incursa/watermill-outbox/middleware"
)

// Whoever exempts a topic means it besides that of waits, whose handler makes its own transaction.
func TestTrap_ExemptTopicsAreFurtherOnes(t *testing.T) {
	forEach(t, func(_ *testing.T, f fixture) {
		transaction, err := middleware.Transaction(f.DB.DB, middleware.TransactionConfig{Exempt: []string{"orders"}})
		f.NoError(err)
		f.exemptsOrdersAndWaits(transaction)
	})
}

func TestTrap_TheInboxExemptsFurtherTopics(t *testing.T) {
	forEach(t, func(t *testing.T, f fixture) {
		config := inbox.Config{Dialect: testoutbox.Dialect(f.DB.Name), Schema: f.DB.Schema}
		f.NoError(inbox.Migrate(t.Context(), f.DB.DB, config))
		in, err := inbox.New(f.DB.DB, config, nil)
		f.NoError(err)
		once, err := middleware.Inbox(in, inbox.Identity{Source: "shop"}, "orders")
		f.NoError(err)
		f.exemptsOrdersAndWaits(once)
	})
}

// exemptsOrdersAndWaits asserts that a middleware on the router begins a transaction for other topics alone.
func (f fixture) exemptsOrdersAndWaits(inTransaction message.HandlerMiddleware) {
	f.T.Helper()
	subscriber, err := outbox.NewSubscriber(f.DB.DB, f.Subscriber(), nil)
	f.NoError(err)
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: testoutbox.Patience}, watermill.NopLogger{})
	f.NoError(err)
	router.AddMiddleware(middleware.Outcome, inTransaction)
	var mu sync.Mutex
	inTx, handled := map[string]bool{}, make(chan struct{}, 3)
	for _, topic := range []string{"orders", "bills", join.DefaultWaitTopic} {
		router.AddConsumerHandler(topic, topic, subscriber, func(msg *message.Message) error {
			mu.Lock()
			_, inTx[topic] = outbox.TxFrom(msg.Context())
			mu.Unlock()
			handled <- struct{}{}
			return nil
		})
		f.add(outbox.Message{UUID: topic, Topic: topic})
	}
	ended := make(chan error, 1)
	go func() { ended <- router.Run(context.WithoutCancel(f.T.Context())) }()
	for range cap(handled) {
		<-handled
	}
	f.NoError(router.Close())
	f.NoError(<-ended)
	f.NoError(subscriber.Close())
	f.Equal(map[string]bool{"orders": false, "bills": true, join.DefaultWaitTopic: false}, inTx)
}
