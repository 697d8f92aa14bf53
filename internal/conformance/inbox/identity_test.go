package inbox_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/inbox"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
	"github.com/incursa/watermill-outbox/middleware"
)

// onceOn is the middleware on an inbox that it installs.
func onceOn(t *testing.T, o *testoutbox.Outbox) message.HandlerMiddleware {
	config := inbox.Config{Dialect: testoutbox.Dialect(o.DB.Name), Schema: o.DB.Schema}
	o.NoError(inbox.Migrate(t.Context(), o.DB.DB, config))
	in, err := inbox.New(o.DB.DB, config, nil)
	o.NoError(err)
	once, err := middleware.Inbox(in, inbox.Identity{Source: "shop"})
	o.NoError(err)
	return once
}

// An outbox takes messages without a UUID. Its Subscriber delivers them with an id of their own, by which they are recognized.
func TestMessagesWithoutAUUIDAreRecognizedByTheirID(t *testing.T) {
	testoutbox.ForEach(t, func(t *testing.T, o *testoutbox.Outbox) {
		once := onceOn(t, o)
		subscriber, err := outbox.NewSubscriber(o.DB.DB, o.Subscriber(), nil)
		o.NoError(err)
		publisher, err := outbox.NewPublisher(o.DB.DB, outbox.PublisherConfig{Dialect: testoutbox.Dialect(o.DB.Name), Schema: o.DB.Schema}, nil)
		o.NoError(err)
		for range 2 {
			o.NoError(publisher.Publish("orders", message.NewMessage("", []byte("the same"))))
		}

		var mu sync.Mutex
		handled, delivered := []outbox.MessageID{}, []outbox.MessageID{}
		note := func(list *[]outbox.MessageID, msg *message.Message) (first bool) {
			delivery, ok := outbox.DeliveryFrom(msg.Context())
			o.True(ok)
			mu.Lock()
			defer mu.Unlock()
			first = !slices.Contains(*list, delivery.MessageID())
			*list = append(*list, delivery.MessageID())
			return first
		}
		twice := func(next message.HandlerFunc) message.HandlerFunc { // as if the process had been killed before its ack
			return func(msg *message.Message) ([]*message.Message, error) {
				first := note(&delivered, msg)
				produced, err := next(msg)
				if err == nil && first {
					err = context.Canceled
				}
				return produced, err
			}
		}
		router, err := message.NewRouter(message.RouterConfig{}, nil)
		o.NoError(err)
		router.AddMiddleware(middleware.Outcome, twice, once)
		router.AddConsumerHandler("handler", "orders", subscriber, func(msg *message.Message) error {
			note(&handled, msg)
			return nil
		})
		ended := make(chan error, 1)
		go func() { ended <- router.Run(context.WithoutCancel(t.Context())) }()
		<-router.Running()
		o.Eventually(func() bool { return o.Count(outbox.Done)+o.Count(outbox.Failed) == 2 }, testoutbox.Patience, testoutbox.Patience/1000)
		o.NoError(router.Close())
		o.NoError(<-ended)
		for _, r := range o.Rows() {
			o.Equal(outbox.Done, r.Status, r.LastError)
		}
		o.Len(handled, 2)
		o.Len(delivered, 4)
	})
}

// A message that has nothing to be recognized by is refused, with what to do about it.
func TestAMessageWithoutAnyIDIsRefused(t *testing.T) {
	t.Parallel()
	_, _, err := inbox.Identity{Source: "broker", Handler: "ship"}.Of(message.NewMessage("", nil))
	require.True(t, outbox.IsPermanent(err))
	require.EqualError(t, err, "identify the message: outbox: Key.MessageID: is empty: the message has no UUID and no header outbox_message_id; "+
		"publish it with a UUID, or set Identity.MessageID")
}
