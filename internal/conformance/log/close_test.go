package log_test

import (
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
)

// The deadline decides, and not DrainTimeout, as in the queue: the handler's time ends, and another reader has its message.
func TestTrap_ShutdownEndsTheHandlersOfAGroup(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.LogN("orders", 0, 1)
		f.Stamp()
		s := f.GroupSubscriber(f.DB.DB, "group", nil, func(c *outbox.SubscriberConfig) { c.DrainTimeout, c.LeaseDuration = time.Hour, time.Hour })
		msg := f.Receive(f.Subscribe(s, "orders"))
		stopped := make(chan error, 1)
		go func() { stopped <- outbox.Drain(suite.Due{Context: f.Context()}, nil, s) }()
		suite.Take(f.T, msg.Context().Done(), "the end of the handler's time")
		err, _ := suite.Take(f.T, stopped, "the drain")
		f.NoError(err)

		again := f.Receive(f.Subscribe(f.GroupSubscriber(f.DB.DB, "group", nil), "orders"))
		f.Equal(1, f.Delivery(again).Attempt(), "it was not its fault")
		again.Ack()
	})
}
