package log_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/faults"
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

// Close says that the database did not answer, as in the queue: the group waits for the lease to expire, and may receive what was
// acked again.
func TestTrap_CloseSaysThatAGroupsLeaseWasNotReleased(t *testing.T) {
	for name, fault := range map[string]faults.Fault{
		"no answer": {Kind: faults.Hang, For: time.Hour}, "an error": {Kind: faults.Refuse, Err: suite.ErrBoom},
	} {
		t.Run(name, func(t *testing.T) {
			forEach(t, func(t *testing.T, f *fixture) {
				var away atomic.Bool
				pool := faults.Open(t, f.DB, faults.Hooks{Fault: func(_ context.Context, s faults.Statement) faults.Fault {
					if away.Load() && isLogLease(s.Text) {
						return fault
					}
					return faults.Fault{}
				}})
				s, err := outbox.NewSubscriber(pool, outbox.SubscriberConfig{
					Dialect: f.Config.Dialect, Schema: f.Config.Schema, ConsumerGroup: "group", LeaseDuration: 8 * time.Second}, nil)
				f.NoError(err)
				f.LogN("orders", 0, 1)
				f.Stamp()
				msg := f.Receive(f.Subscribe(s, "orders"))
				away.Store(true)
				msg.Ack()
				err = s.Close()
				f.ErrorContains(err, `consumer group "group"`)
				f.ErrorContains(err, "orders")
				f.Equal(err, s.Close(), "again")
			})
		})
	}
}
