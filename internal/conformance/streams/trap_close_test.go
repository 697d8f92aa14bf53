package streams_test

import (
	"errors"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
)

// The heads of many streams are acked together after Close has begun: nothing of what is behind them stays with the Subscriber.
func TestTrap_CloseGivesBackWhatIsBehindTheLastAcks(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		const rounds, streams, each = 8, 30, 3
		for range rounds {
			f.Ordered("orders", streams, each)
			s := f.Subscriber(func(c *outbox.SubscriberConfig) { c.DrainTimeout, c.LeaseDuration = time.Minute, time.Hour })
			heads := f.ReceiveN(f.Subscribe(s, "orders"), streams)
			closed := make(chan error, 1)
			go func() { closed <- s.Close() }()
			for {
				if _, err := s.Subscribe(f.Context(), "more"); errors.Is(err, outbox.ErrClosed) {
					break
				}
			}
			suite.AckAll(heads)
			err, _ := suite.Take(f.T, closed, "Close")
			f.NoError(err)
			rest := f.ClaimUpTo(1000, "orders")
			f.Equal(streams*(each-1), len(rest), "what can be claimed at once")
			f.Settle(suite.Settled(outbox.Ack, rest...)...)
		}
	})
}
