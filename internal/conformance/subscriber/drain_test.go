package subscriber_test

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/forwarder"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
	"github.com/incursa/watermill-outbox/middleware"
)

// drained is a program with a router, a subscriber and a forwarder.
type drained struct {
	*testoutbox.Outbox
	router     *message.Router
	subscriber *outbox.Subscriber
	forwarder  *forwarder.Forwarder
}

func newDrained(o *testoutbox.Outbox, publisher message.Publisher, handle message.NoPublishHandlerFunc) *drained {
	config := o.Subscriber()
	config.DrainTimeout = time.Hour // the deadline decides
	subscriber, err := outbox.NewSubscriber(o.DB.DB, config, nil)
	o.NoError(err)
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: time.Hour}, watermill.NopLogger{})
	o.NoError(err)
	router.AddMiddleware(middleware.Outcome)
	router.AddConsumerHandler("handler", "orders", subscriber, handle)
	f, err := forwarder.New(o.DB.DB, publisher, forwarder.Config{Topics: []string{"bills"}, Subscriber: config}, nil)
	o.NoError(err)
	ctx := context.WithoutCancel(o.T.Context())
	ended := make(chan error, 2)
	go func() { ended <- router.Run(ctx) }()
	go func() { ended <- f.Run(ctx) }()
	o.T.Cleanup(func() {
		for range cap(ended) {
			if err := <-ended; err != nil {
				o.T.Log("ended with:", err) // some of these tests leave handlers behind
			}
		}
	})
	<-router.Running()
	<-f.Running()
	return &drained{o, router, subscriber, f}
}

type noPublisher struct{}

func (noPublisher) Publish(string, ...*message.Message) error { return nil }
func (noPublisher) Close() error                              { return nil }

// Handlers finish, and all is settled.
func TestDrainLetsHandlersFinish(t *testing.T) {
	testoutbox.ForEach(t, func(t *testing.T, o *testoutbox.Outbox) {
		begun, finish := make(chan struct{}, 100), make(chan struct{})
		d := newDrained(o, noPublisher{}, func(*message.Message) error {
			begun <- struct{}{}
			<-finish
			return nil
		})
		o.Enqueue("orders", 0, 1)
		<-begun
		ctx, cancel := context.WithTimeout(t.Context(), testoutbox.Patience)
		defer cancel()
		result := make(chan error, 1)
		go func() { result <- outbox.Drain(ctx, d.router, d.subscriber, d.forwarder) }()
		for { // nothing more is taken
			if _, err := d.subscriber.Subscribe(ctx, "more"); err != nil {
				o.ErrorIs(err, outbox.ErrClosed)
				break
			}
		}
		o.Enqueue("orders", 1, 10)
		close(finish)
		o.NoError(<-result)
		o.Equal(1, o.Count(outbox.Done))
		o.Equal(10, o.Count(outbox.Ready))
		o.NoError(outbox.Drain(ctx, d.router, d.subscriber, d.forwarder), "again")
	})
}

// The deadline is that of all, whatever the timeouts are; what hangs is named, and its message given back.
func TestDrainEndsWithItsDeadline(t *testing.T) {
	testoutbox.ForEach(t, func(t *testing.T, o *testoutbox.Outbox) {
		begun, release := make(chan struct{}, 100), make(chan struct{})
		d := newDrained(o, noPublisher{}, func(*message.Message) error {
			begun <- struct{}{}
			<-release
			return nil
		})
		o.Enqueue("orders", 0, 1)
		<-begun
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // a fifth of it is left for giving back
		defer cancel()
		err := outbox.Drain(ctx, d.router, d.subscriber, d.forwarder)
		o.ErrorIs(err, context.DeadlineExceeded)
		o.ErrorContains(err, "router")
		o.NotContains(err.Error(), "Subscriber")
		o.NotContains(err.Error(), "Forwarder")
		o.Equal(1, o.Count(outbox.Ready))
		o.Equal(0, o.Attempts())
		close(release)
	})
}
