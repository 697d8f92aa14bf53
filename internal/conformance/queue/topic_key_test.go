package queue_test

import (
	"testing"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/testdb"
)

// Two topics have the same key, as two in some billions of billions do: a claim for one gives back what is of the other.
func TestTwoTopicsOfOneKey(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		ids := f.Enqueue(outbox.Message{Topic: "orders"}, outbox.Message{Topic: "stranger"})
		f.Exec("UPDATE {outbox_state} SET {topic_key} = %d", testdb.TopicKey("orders"))
		claimed := f.Claim("orders")
		f.Equal(ids[:1], suite.MessageIDs(claimed))
		r := f.Row(ids[1])
		f.Equal([]int{int(outbox.Ready), 0}, []int{r.Status, r.Retries})
		f.False(r.IsDue, "it comes again later, so that others get through")
		f.Settle(suite.Settled(outbox.Ack, claimed...)...)
		f.MakeDue()
		f.Empty(f.Claim("orders"))
	})
}
