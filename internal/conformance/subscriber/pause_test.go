package subscriber_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/admin"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
)

// A Subscriber does not complain of a paused topic that nobody handles here, and its backlog says who paused it.
func TestAPausedTopicIsNoTrouble(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Enqueue(outbox.Message{Topic: "paused"}, outbox.Message{Topic: "unhandled"})
		a, err := admin.New(f.Outbox)
		f.NoError(err)
		f.NoError(a.Pause(f.Context(), admin.PauseParams{Topic: "paused", By: "alice", Reason: "maintenance"}))
		book, backlog := suite.NewLogBook(), make(chan []outbox.TopicBacklog, 1000)
		s := f.SubscriberOn(f.DB.DB, book, func(c *outbox.SubscriberConfig) {
			c.UnhandledAfter = 5 * time.Millisecond
			c.Hooks.OnBacklog = func(topics []outbox.TopicBacklog) { backlog <- topics }
		})
		f.Subscribe(s, "handled")
		f.Equal("unhandled", f.Await(book, "ERROR", "without a handler").Fields["names"])
		topics, _ := suite.Take(f.T, backlog, "the gauge")
		slices.SortFunc(topics, func(a, b outbox.TopicBacklog) int { return strings.Compare(a.Topic, b.Topic) })
		f.Equal("paused", topics[1].Topic)
		f.Equal("alice maintenance", topics[1].PausedBy+" "+topics[1].PauseReason)
		f.False(topics[1].PausedSince.IsZero())
		f.True(topics[2].PausedSince.IsZero())
		f.NoError(s.Close())
	})
}
