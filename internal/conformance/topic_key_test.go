package conformance

import (
	"testing"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/testdb"
)

// Two topics have the same key, as two in some billions of billions do: a claim for one gives back what is of the other.
func TestTwoTopicsOfOneKey(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		ids := f.enqueue(outbox.Message{Topic: "orders"}, outbox.Message{Topic: "stranger"})
		f.exec("UPDATE {outbox_state} SET {topic_key} = %d", testdb.TopicKey("orders"))
		claimed := f.claim("orders")
		f.Equal(ids[:1], messageIDs(claimed))
		r := f.row(ids[1])
		f.Equal([]int{int(outbox.Ready), 0}, []int{r.status, r.retries})
		f.False(r.isDue, "it comes again later, so that others get through")
		f.settle(settled(outbox.Ack, claimed...)...)
		f.makeDue()
		f.Empty(f.claim("orders"))
	})
}
