package conformance

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	"github.com/stretchr/testify/require"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/testdb"
)

// TestPubSub is Watermill's own suite, in queue mode: competing consumers of one table.
func TestPubSub(t *testing.T) {
	testdb.ForEach(t, func(t *testing.T, db *testdb.DB) {
		d := dialect(db.Name)
		require.NoError(t, outbox.Migrate(t.Context(), db.DB, outbox.MigrateConfig{Dialect: d, Schema: db.Schema}))
		tests.TestPubSub(t, tests.Features{Persistent: true}, func(t *testing.T) (message.Publisher, message.Subscriber) {
			pool := db.Reopen(t)
			pub, err := outbox.NewPublisher(pool.DB, outbox.PublisherConfig{Dialect: d, Schema: db.Schema}, nil)
			require.NoError(t, err)
			sub, err := outbox.NewSubscriber(pool.DB, outbox.SubscriberConfig{Dialect: d, Schema: db.Schema, MaxAttempts: -1,
				PollInterval: time.Millisecond, MaxPollInterval: 10 * time.Millisecond, DrainTimeout: 100 * time.Millisecond,
				Backoff: func(int) time.Duration { return 5 * time.Millisecond }}, nil)
			require.NoError(t, err)
			return pub, sub
		}, nil)
	})
}
