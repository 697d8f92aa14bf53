package subscriber_test

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

// pubSub is what Watermill's suite constructs again and again. The suite nacks one message hundreds of times: attempts are
// unlimited, the backoff short.
func (f *fixture) pubSub(t *testing.T) (message.Publisher, message.Subscriber) {
	pool := f.DB.OneOfMany(t)
	pub, err := outbox.NewPublisher(pool.DB, outbox.PublisherConfig{Dialect: f.Config.Dialect, Schema: f.Config.Schema}, nil)
	require.NoError(t, err)
	sub, err := outbox.NewSubscriber(pool.DB, outbox.SubscriberConfig{
		Dialect: f.Config.Dialect, Schema: f.Config.Schema, MaxAttempts: -1, AllowCompeting: true,
		PollInterval: time.Millisecond, MaxPollInterval: 10 * time.Millisecond, DrainTimeout: 100 * time.Millisecond,
		Backoff: func(int) time.Duration { return 5 * time.Millisecond },
	}, nil)
	require.NoError(t, err)
	return pub, sub
}
