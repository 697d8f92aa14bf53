package outbox

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func streamDelivery(seq WorkItemID, key string) *Delivery {
	return &Delivery{claimed: Claimed{Message: Message{Topic: "orders", StreamKey: key}, Receipt: Receipt{Seq: seq}}}
}

func TestARunIsHandedOutOneByOne(t *testing.T) {
	r := newRuns()
	a1, a2, a3 := streamDelivery(1, "a"), streamDelivery(2, "a"), streamDelivery(3, "a")
	b, none := streamDelivery(4, "b"), streamDelivery(5, "")
	require.Equal(t, []*Delivery{a1, b, none}, r.begin(a1, a2, b, none), "the first of each stream, and those of none")
	require.Empty(t, r.begin(a3))

	next, back := r.after(a1, true)
	require.Equal(t, a2, next)
	require.Empty(t, back)
	next, back = r.after(a2, false)
	require.Nil(t, next)
	require.Equal(t, []*Delivery{a3}, back, "with the one that failed")
	require.Len(t, r.begin(streamDelivery(2, "a")), 1, "another run")
}
