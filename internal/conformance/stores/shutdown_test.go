package stores_test

import (
	"context"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/stores"
)

// The deadline decides, and not DrainTimeout: what handlers hold by then is given back in every store, with no attempt spent.
func TestTrap_DrainGivesBackTheMessagesOfAllStores(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		tenants := f.tenants("a", "b")
		s := f.everywhere(f.static(tenants...), nil, func(c *stores.SubscriberConfig) { c.Subscriber.DrainTimeout = time.Hour })
		messages := f.subscribeAll(s, "t")
		for _, x := range tenants {
			x.EnqueueN("t", 3)
		}
		first, second := f.Receive(messages), f.Receive(messages)
		for f.storeOfMessage(first) == f.storeOfMessage(second) {
			second.Ack()
			second = f.Receive(messages)
		}
		stopped := make(chan error, 1)
		go func() { stopped <- outbox.Drain(suite.Due{Context: f.Context()}, nil, s) }()
		err, _ := suite.Take(f.T, stopped, "the drain")
		f.NoError(err)
		for _, x := range tenants {
			f.Zero(x.Number("SELECT COUNT(*) FROM {all} WHERE {status} = %d", outbox.InProgress))
			f.Positive(x.Number("SELECT COUNT(*) FROM {all} WHERE {status} = %d", outbox.Ready))
			f.Zero(x.Number("SELECT MAX({retry_count}) FROM {all}"))
		}
		suite.Take(f.T, first.Context().Done(), "the end of the handler's time")
		_, err = s.Subscribe(f.Context(), "more")
		f.ErrorIs(err, outbox.ErrClosed)
	})
}

// It shortens a Close that has begun, and names the stores that are not done when the context ends.
func TestTrap_ShutdownShortensCloseAndNamesStores(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		x := f.tenants("a")[0]
		s := f.everywhere(f.static(x), nil, func(c *stores.SubscriberConfig) { c.Subscriber.DrainTimeout = time.Hour })
		messages := f.subscribeAll(s, "t")
		x.EnqueueN("t", 1)
		msg := f.Receive(messages)
		closed := make(chan error, 1)
		go func() { closed <- s.Close() }()
		ended, cancel := context.WithCancel(f.Context())
		cancel()
		err := s.Shutdown(ended)
		f.ErrorIs(err, context.Canceled)
		f.ErrorContains(err, `"a"`)
		f.NoError(msg.Context().Err(), "without a deadline handlers have their DrainTimeout")
		f.NoError(s.Shutdown(suite.Due{Context: f.Context()}))
		err, _ = suite.Take(f.T, closed, "the end of Close")
		f.NoError(err)
		f.EqualValues(1, x.Number("SELECT COUNT(*) FROM {all} WHERE {status} = %d", outbox.Ready))
		f.NoError(s.Shutdown(ended), "again")
	})
}

func TestShutdownOfAnUnusedSubscriber(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		s := f.everywhere(f.static(f.tenants("a")...), nil)
		f.NoError(s.Shutdown(f.Context()))
		f.NoError(s.Close())
	})
}
