package log_test

import (
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
)

// A message that blocks a group is skipped while its reader is at work. It becomes a dead letter, which can be delivered again.
func TestSkipGroupHead(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.LogN("orders", 0, 3)
		f.Stamp()
		s := f.GroupSubscriber(f.DB.DB, "group", nil, maxAttempts(2), func(c *outbox.SubscriberConfig) { c.OnGroupFailure = outbox.Block })
		messages := f.Subscribe(s, "orders")
		msg := f.Receive(messages)
		msg.Ack()
		for range 3 {
			msg = f.Receive(messages)
			f.Equal("1", msg.UUID)
			f.nack(msg, suite.ErrBoom)
		}
		skipped, err := f.Outbox.SkipGroupHead(f.Context(), "group", "orders")
		f.NoError(err)
		f.Equal([]any{"1", int64(2)}, []any{skipped.UUID, skipped.Position})
		f.Equal([]string{"1"}, f.deadLetters("group"))
		letters, err := f.Outbox.GroupDeadLetters(f.Context(), outbox.GroupDeadLetterParams{Group: "group"})
		f.NoError(err)
		f.GreaterOrEqual(letters[0].Attempts, 2)
		f.Contains(letters[0].Reason, "skipped by an operator")
		for msg = f.Receive(messages); msg.UUID == "1"; msg = f.Receive(messages) { // until its reader knows
			f.nack(msg, suite.ErrBoom)
		}
		f.Equal("2", msg.UUID)
		msg.Ack()

		_, err = f.Outbox.RequeueGroupDeadLetters(f.Context(), outbox.GroupDeadLetterParams{Group: "group", All: true})
		f.NoError(err)
		msg = f.Receive(messages)
		f.Equal("1", msg.UUID)
		msg.Ack()
		f.Eventually(func() bool { return len(f.deadLetters("group")) == 0 }, time.Minute, 10*time.Millisecond)
		f.NoError(s.Close())
		_, err = f.Outbox.SkipGroupHead(f.Context(), "group", "orders")
		f.ErrorIs(err, outbox.ErrNotBlocked)
	})
}

// An ack that comes after the skip changes nothing: the message stays a dead letter, and the group goes on behind it.
func TestSkipGroupHead_WhileTheHandlerRuns(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.LogN("orders", 0, 2)
		f.Stamp()
		messages := f.Subscribe(f.GroupSubscriber(f.DB.DB, "group", nil), "orders")
		msg := f.Receive(messages)
		f.nack(msg, suite.ErrBoom)
		msg = f.Receive(messages)
		f.Equal(2, f.Delivery(msg).Attempt())
		_, err := f.Outbox.SkipGroupHead(f.Context(), "group", "orders")
		f.NoError(err)
		msg.Ack()
		msg = f.Receive(messages)
		f.Equal("1", msg.UUID)
		msg.Ack()
		f.Equal([]string{"0"}, f.deadLetters("group"))
	})
}

func TestSkipGroupHead_Refuses(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.LogN("orders", 0, 1)
		f.Stamp()
		for group, topic := range map[string]string{"": "orders", "group": ""} {
			_, err := f.Outbox.SkipGroupHead(f.Context(), group, topic)
			var bad *outbox.FieldError
			f.ErrorAs(err, &bad)
		}
		_, err := f.Outbox.SkipGroupHead(f.Context(), "nobody", "orders")
		f.ErrorIs(err, outbox.ErrNotBlocked)
		f.Empty(f.deadLetters("nobody"))
	})
}
