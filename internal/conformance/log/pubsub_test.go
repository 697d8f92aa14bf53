package log_test

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	"github.com/stretchr/testify/require"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/testdb"
)

// Watermill's own suite, on the log: consumer groups, in order.
func TestLogPubSub(t *testing.T) {
	for _, backend := range testdb.Backends(t) {
		t.Run(backend.Name, func(t *testing.T) {
			f := &fixture{suite.New(t, backend.Open(t), "")}
			f.Migrate()
			f.Sequencer()
			tests.TestPubSub(t, tests.Features{ConsumerGroups: true, GuaranteedOrder: true, Persistent: true},
				func(t *testing.T) (message.Publisher, message.Subscriber) { return f.logPubSub(t, "default") },
				f.logPubSub)
		})
	}
}

// logPubSub returns a publisher into the log, and a subscriber of a group.
func (f *fixture) logPubSub(t *testing.T, group string) (message.Publisher, message.Subscriber) {
	t.Helper()
	p, err := outbox.NewPublisher(f.DB.DB, outbox.PublisherConfig{
		Dialect: f.Config.Dialect, Schema: f.Config.Schema, Table: f.Config.Table, Log: outbox.LogOnly}, nil)
	require.NoError(t, err)
	s, err := outbox.NewSubscriber(f.DB.DB, outbox.SubscriberConfig{
		Dialect: f.Config.Dialect, Schema: f.Config.Schema, Table: f.Config.Table, ConsumerGroup: group,
		PollInterval: time.Millisecond, MaxPollInterval: 20 * time.Millisecond, DrainTimeout: time.Second,
		Backoff: func(int) time.Duration { return 5 * time.Millisecond }, MaxAttempts: -1,
	}, watermill.NopLogger{})
	require.NoError(t, err)
	t.Cleanup(func() { // Watermill's test of the order does not close all of its own
		if err := s.Close(); err != nil {
			t.Errorf("closing the subscriber: %v", err)
		}
	})
	return p, s
}
