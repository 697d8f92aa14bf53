package stores_test

import (
	"context"
	"testing"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/stores"
)

// A second subscription would get nothing, and say nothing.
func TestASecondSubscriptionToATopicIsRefused(t *testing.T) {
	forEachEmpty(t, func(t *testing.T, f *fixture) {
		s := f.everywhere(f.static(f.tenants("a", "b")...), nil, func(c *stores.SubscriberConfig) { c.Subscriber.AllowCompeting = false })
		first, cancel := context.WithCancel(context.Background())
		defer cancel()
		_, err := s.Subscribe(first, "t")
		f.NoError(err)
		_, err = s.Subscribe(f.Context(), "t")
		f.ErrorIs(err, outbox.ErrCompeting)
		_, err = s.Subscribe(f.Context(), "u")
		f.NoError(err)
		cancel()
		_, err = s.Subscribe(context.Background(), "t")
		f.NoError(err, "the first has ended")
	})
}
