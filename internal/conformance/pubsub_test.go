package conformance

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	"github.com/stretchr/testify/require"

	outbox "github.com/incursa/watermill-outbox"
)

// queueFeatures is what competing consumers of one table promise. Exactly-once delivery would skip the tests of loss.
var queueFeatures = tests.Features{Persistent: true}

// TestPubSub is Watermill's own suite.
func TestPubSub(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		tests.TestPubSub(t, queueFeatures, f.pubSub, nil)
	})
}

// pubSub is what Watermill's suite constructs again and again, each with a pool of its own. It nacks one message
// hundreds of times, and so attempts are unlimited and the backoff short.
func (f *fixture) pubSub(t *testing.T) (message.Publisher, message.Subscriber) {
	pool := f.db.Reopen(t)
	pub, err := outbox.NewPublisher(pool.DB, outbox.PublisherConfig{Dialect: f.config.Dialect, Schema: f.config.Schema}, nil)
	require.NoError(t, err)
	sub, err := outbox.NewSubscriber(pool.DB, outbox.SubscriberConfig{
		Dialect: f.config.Dialect, Schema: f.config.Schema, MaxAttempts: -1,
		PollInterval: time.Millisecond, MaxPollInterval: 10 * time.Millisecond, DrainTimeout: 100 * time.Millisecond,
		Backoff: func(int) time.Duration { return 5 * time.Millisecond },
	}, nil)
	require.NoError(t, err)
	return pub, sub
}
