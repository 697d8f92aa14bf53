package fanout_test

import (
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/fanout"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
)

// A message of the log may expire before it is due. Its copies do, too, and the messages after it are copied.
func TestTrap_FanoutCopiesWhatExpiresBeforeItIsDue(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Sequencer()
		due, expires := f.Now().Add(time.Hour).Truncate(time.Millisecond), f.Now().Add(time.Minute).Truncate(time.Second)
		_, err := f.LogOutbox().Enqueue(f.Context(), f.DB.DB, outbox.Message{
			UUID: "1", Topic: "orders", DueAt: due, Headers: map[string]string{"outbox_expires_at": expires.Format(time.RFC3339)}})
		f.NoError(err)
		f.EnqueueLogged(f.LogOutbox(), "orders", "2")
		policy := suite.ToTopics("p", "copy")
		policy.Destinations = append(policy.Destinations, fanout.ToStore("store", f.Outbox, "stored"))
		f.Dispatch(nil, []fanout.Policy{policy})
		f.HasPassed("p", 2)
		for _, topic := range []string{"copy", "stored"} {
			f.Equal([]string{"1", "2"}, f.UUIDsOf(topic))
			id := f.Rows("{topic} = '" + topic + "' AND {uuid} = '1'")[0].ID
			found, err := f.Outbox.Get(f.Context(), id)
			f.NoError(err)
			f.Len(found, 1)
			f.SameTime(due, found[0].DueAt)
			f.SameTime(expires, found[0].ExpiresAt)
		}
	})
}
