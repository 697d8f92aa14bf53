package inbox_test

import (
	"context"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	wmiddleware "github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
)

// A broker that knows no dead letters delivers a mismatch again and again. With the poison queue it is taken away once.
func TestAMismatchLeavesTheLoopThroughAPoisonQueue(t *testing.T) {
	testoutbox.ForEach(t, func(t *testing.T, o *testoutbox.Outbox) {
		once := onceOn(t, o)
		broker := gochannel.NewGoChannel(gochannel.Config{OutputChannelBuffer: 10}, watermill.NopLogger{})
		poisoned, err := broker.Subscribe(t.Context(), "poison")
		o.NoError(err)
		poison, err := wmiddleware.PoisonQueueWithFilter(broker, "poison", outbox.IsPermanent)
		o.NoError(err)

		router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
		o.NoError(err)
		router.AddMiddleware(poison, once)
		var mu sync.Mutex
		handled := []string{}
		router.AddConsumerHandler("handler", "orders", broker, func(msg *message.Message) error {
			mu.Lock()
			defer mu.Unlock()
			handled = append(handled, string(msg.Payload))
			return nil
		})
		ended := make(chan error, 1)
		go func() { ended <- router.Run(context.WithoutCancel(t.Context())) }()
		<-router.Running()
		for _, content := range []string{"one", "another"} {
			o.NoError(broker.Publish("orders", message.NewMessage("id", []byte(content))))
		}
		msg := <-poisoned
		o.Contains(string(msg.Metadata.Get(wmiddleware.ReasonForPoisonedKey)), "received")
		msg.Ack()
		o.NoError(router.Close())
		o.NoError(<-ended)
		o.NoError(broker.Close())
		o.Empty(poisoned, "it comes once")
		o.Len(handled, 1)
	})
}
