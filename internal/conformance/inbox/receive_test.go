package inbox_test

import (
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
)

// What a broker kept in order stays in order: the key of the stream comes with the message.
func TestTrap_InboxReceiveKeepsTheStreamKey(t *testing.T) {
	forEachInbox(t, func(_ *testing.T, f *inboxFixture) {
		receive, err := f.In.Receive(suite.Identity)
		f.NoError(err)
		for id, key := range map[string]string{"1": "customer 1", "2": ""} {
			msg := f.Coming(id, "order")
			if key != "" {
				msg.Metadata.Set(outbox.HeaderStreamKey, key)
			}
			f.NoError(receive(msg))
			queued, err := f.Outbox.Get(f.Context(), f.Entry(suite.KeyOf(id)).QueueID)
			f.NoError(err)
			f.Len(queued, 1)
			f.Equal(key, queued[0].StreamKey)
		}
	})
}

// What the queue can never take is for the poison queue, or a broker delivers it without end.
func TestTrap_InboxReceiveRefusesForGood(t *testing.T) {
	forEachInbox(t, func(_ *testing.T, f *inboxFixture) {
		receive, err := f.In.Receive(suite.Identity)
		f.NoError(err)
		for field, metadata := range map[string]message.Metadata{
			"Headers":                    {"a": "\xff"},
			"Headers[outbox_expires_at]": {"outbox_expires_at": "tomorrow"},
			"Headers[correlation_id]":    {"correlation_id": strings.Repeat("c", 256)},
			"StreamKey":                  {outbox.HeaderStreamKey: " "},
		} {
			msg := f.Coming("1", "order")
			msg.Metadata = metadata
			err := receive(msg)
			f.RequireField(err, field)
			f.True(outbox.IsPermanent(err), field)
		}
		f.Zero(f.CountEntries() + f.Count())
	})
}
