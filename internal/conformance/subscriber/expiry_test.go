package subscriber_test

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
)

// A message that has expired reaches no handler: it fails, and no attempt is spent. Others are handled.
func TestAnExpiredMessageFails(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		now := f.Now()
		ids := f.Enqueue(outbox.Message{Topic: "orders", UUID: "late", ExpiresAt: now.Add(-time.Second)},
			outbox.Message{Topic: "orders", UUID: "in time", ExpiresAt: now.Add(time.Hour), Headers: map[string]string{"k": "v"}},
			outbox.Message{Topic: "orders", UUID: "first", StreamKey: "s", ExpiresAt: now.Add(-time.Second)},
			outbox.Message{Topic: "orders", UUID: "second", StreamKey: "s"})
		s := f.Subscriber(func(c *outbox.SubscriberConfig) { c.OnStreamFailure = outbox.DeadLetter })
		messages := f.Subscribe(s, "orders")
		var got []string
		for _, msg := range f.ReceiveN(messages, 2) {
			got = append(got, msg.UUID)
			if msg.UUID == "in time" {
				f.Equal("v", msg.Metadata["k"])
				f.Equal(now.Add(time.Hour).Format(time.RFC3339Nano), msg.Metadata["outbox_expires_at"])
			}
			msg.Ack()
		}
		f.ElementsMatch([]string{"in time", "second"}, got)
		for _, id := range []outbox.MessageID{ids[0], ids[2]} {
			r := f.Becomes(id, outbox.Failed)
			f.Equal("expired before it was handled", r.LastError, "one text for all, so that they are counted together")
			f.Zero(r.Retries)
		}
		f.Becomes(ids[1], outbox.Done)
		f.NoError(s.Close())
	})
}

// A message that expires while it waits for a handler, claimed already, is not handed out.
func TestAMessageExpiresWhileItWaitsForAHandler(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		s := f.Subscriber()
		messages := f.Subscribe(s, "orders")
		first := f.Enqueue(outbox.Message{Topic: "orders", UUID: "first"})[0]
		f.Becomes(first, outbox.InProgress)
		expiry := f.Now().Add(time.Second)
		late := f.Enqueue(outbox.Message{Topic: "orders", UUID: "late", ExpiresAt: expiry})[0]
		f.Eventually(func() bool { return f.Now().After(expiry) }, suite.Patience, 5*time.Millisecond)
		f.Receive(messages).Ack()
		f.Equal("expired before it was handled", f.Becomes(late, outbox.Failed).LastError)
		f.Empty(messages)
		f.NoError(s.Close())
	})
}

// A Watermill message expires by its header, and a claim tells both moments to whoever calls it.
func TestTheHeaderSaysWhenAMessageExpires(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		p := f.Publisher(f.DB.DB)
		msg := message.NewMessage(watermill.NewUUID(), nil)
		msg.Metadata["outbox_expires_at"] = "2020-01-02T03:04:05+01:00"
		f.NoError(p.Publish("orders", msg))
		claimed := f.ClaimWith(outbox.ClaimParams{Topics: suite.Quotas("orders")})
		f.Len(claimed, 1)
		f.Equal(time.Date(2020, 1, 2, 2, 4, 5, 0, time.UTC), claimed[0].ExpiresAt)
		f.InDelta(0, f.Now().Sub(claimed[0].ClaimedAt), float64(time.Minute))

		var bad *outbox.FieldError
		msg = message.NewMessage(watermill.NewUUID(), nil)
		msg.Metadata["outbox_expires_at"] = "tomorrow"
		f.ErrorAs(p.Publish("orders", msg), &bad)
		f.Equal("Headers[outbox_expires_at]", bad.Field)
		due := f.Now().Add(time.Hour)
		_, err := f.Outbox.Enqueue(f.Context(), f.DB.DB, outbox.Message{Topic: "orders", DueAt: due, ExpiresAt: due})
		f.ErrorAs(err, &bad)
		f.Equal("ExpiresAt", bad.Field)
	})
}

// A delay is longer than the life of the message: that is a mistake, whichever way the due time is given.
func TestTrap_WhatExpiresDuringItsDelayIsRefused(t *testing.T) {
	forEach(t, func(_ *testing.T, f *fixture) {
		expires := time.Now().Add(time.Hour)
		_, err := f.Outbox.Enqueue(f.Context(), f.DB.DB, outbox.Message{Topic: "orders", Delay: 2 * time.Hour, ExpiresAt: expires})
		f.RequireField(err, "ExpiresAt")
		f.Zero(f.Count())
		f.Enqueue(outbox.Message{Topic: "orders", Delay: time.Minute, ExpiresAt: expires})
	})
}
