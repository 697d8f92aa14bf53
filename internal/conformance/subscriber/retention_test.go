package subscriber_test

import (
	"fmt"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
)

func TestDeleteOnAckKeepsWhatHasFailed(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		deleting := f.Subscriber(func(c *outbox.SubscriberConfig) { c.DeleteOnAck = true })
		messages := f.Subscribe(deleting, "orders")
		f.EnqueueN("orders", 5)
		for i := range 5 {
			msg := f.Receive(messages)
			if i == 0 {
				f.Delivery(msg).SetErr(outbox.Permanent(fmt.Errorf("kept")))
				msg.Nack()
				continue
			}
			msg.Ack()
		}
		f.Eventually(func() bool { return f.Count() == 1 }, suite.Patience, 2*time.Millisecond)
		f.Len(f.Rows("{status} = 3"), 1)
	})
}

// The subscriber purges what has been done for longer than its retention, and nothing else.
func TestRetentionPurgesWhatIsDone(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		left := f.Retained()
		f.Subscribe(f.Subscriber(func(c *outbox.SubscriberConfig) { c.Janitor.Done = 300 * time.Millisecond }), "orders")
		f.Eventually(func() bool { return f.Count() == len(left) }, suite.Patience, 20*time.Millisecond)
		f.ElementsMatch(left, f.UUIDs())
	})
}
