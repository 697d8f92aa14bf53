package subscriber_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
)

// Thousands of topics without a handler were as many lines of the log at each look.
// OUTBOX_TEST_QUIET=1 makes them as many as they were when it was noticed.
func TestTrap_ManyUnhandledTopics(t *testing.T) {
	topics := 300
	if os.Getenv("OUTBOX_TEST_QUIET") != "" {
		topics = 9_999
	}
	forEach(t, func(t *testing.T, f *fixture) {
		messages := make([]outbox.Message, topics)
		for i := range messages {
			messages[i] = outbox.Message{UUID: "1", Topic: fmt.Sprintf("nobody's %04d", i)}
		}
		f.Enqueue(messages...)
		book, looks := suite.NewLogBook(), make(chan []outbox.TopicBacklog)
		done := make(chan struct{})
		s := f.SubscriberOn(f.DB.DB, book, func(c *outbox.SubscriberConfig) {
			c.UnhandledAfter = 5 * time.Millisecond
			c.Hooks.OnBacklog = func(topics []outbox.TopicBacklog) {
				select {
				case looks <- topics:
				case <-done:
				}
			}
		})
		f.Subscribe(s, "handled")
		for range 5 {
			backlog, _ := suite.Take(f.T, looks, "a look at all topics")
			f.Len(backlog, topics+1)
		}
		f.Enqueue(outbox.Message{UUID: "1", Topic: "another"})
		f.Eventually(func() bool {
			_, _ = suite.Take(f.T, looks, "a look at all topics")
			return len(book.At("ERROR", "without a handler")) > 1
		}, suite.Patience, time.Millisecond)
		close(done)
		f.NoError(s.Close())
		lines := book.At("ERROR", "without a handler")
		f.Len(lines, 2, "one line for the first look, one for the topic that came later")
		assert.Equal(t, topics, lines[0].Fields["topics"])
		assert.Equal(t, "nobody's 0000, nobody's 0001, nobody's 0002, nobody's 0003, nobody's 0004, …", lines[0].Fields["names"])
		assert.Equal(t, "another", lines[1].Fields["names"])
		assert.Equal(t, 1, lines[1].Fields["new"])
	})
}

// What a Subscriber handles is told too when it is empty, and what others handle once more when it has become so.
func TestSubscriber_BacklogsFallToZero(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		looks, done := make(chan []outbox.TopicBacklog), make(chan struct{})
		f.EnqueueN("another's", 1)
		s := f.Subscriber(func(c *outbox.SubscriberConfig) {
			c.UnhandledAfter = time.Millisecond
			c.Hooks.OnBacklog = func(topics []outbox.TopicBacklog) {
				select {
				case looks <- topics:
				case <-done:
				}
			}
		})
		f.Subscribe(s, "mine")
		waiting := func(topics []outbox.TopicBacklog) map[string]int {
			counts := map[string]int{}
			for _, topic := range topics {
				counts[topic.Topic] = topic.Waiting
			}
			return counts
		}
		first, _ := suite.Take(f.T, looks, "a look")
		f.Equal(map[string]int{"mine": 0, "another's": 1}, waiting(first))
		f.Len(f.Claim("another's"), 1)
		f.Eventually(func() bool {
			now, _ := suite.Take(f.T, looks, "a look")
			n, told := waiting(now)["another's"]
			return told && n == 0
		}, suite.Patience, time.Millisecond)
		last, _ := suite.Take(f.T, looks, "a look")
		f.Equal(map[string]int{"mine": 0}, waiting(last))
		close(done)
		f.NoError(s.Close())
	})
}

func TestHooks_AClaimNamesItsTopics(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		var events []outbox.ClaimEvent
		o := f.NewOutbox(f.DB.DB, func(c *outbox.Config) {
			c.Hooks.OnClaim = func(e outbox.ClaimEvent) { events = append(events, e) }
		})
		f.EnqueueN("a", 2)
		f.EnqueueN("b", 1)
		_, err := o.Claim(f.Context(), outbox.ClaimParams{Topics: suite.Quotas("a", "b", "c")})
		f.NoError(err)
		f.Len(events, 1)
		f.Equal(map[string]int{"a": 2, "b": 1}, events[0].Topics)
	})
}
