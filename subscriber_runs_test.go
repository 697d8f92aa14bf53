package outbox

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func streamDelivery(seq WorkItemID, key string) *Delivery {
	return &Delivery{claimed: &Claimed{Message: Message{Topic: "orders", StreamKey: key}, Receipt: Receipt{Seq: seq}}}
}

func TestARunIsHandedOutOneByOne(t *testing.T) {
	r := newRuns(false)
	a1, a2, a3 := streamDelivery(1, "a"), streamDelivery(2, "a"), streamDelivery(3, "a")
	b, none := streamDelivery(4, "b"), streamDelivery(5, "")
	require.Equal(t, []*Delivery{a1, b, none}, r.begin(a1, a2, b, none), "the first of each stream, and those of none")
	require.Empty(t, r.begin(a3))

	next, back, ended := r.after(a1, true)
	require.Equal(t, a2, next)
	require.Empty(t, back)
	require.False(t, ended)
	next, back, ended = r.after(a2, false)
	require.Nil(t, next)
	require.Equal(t, []*Delivery{a3}, back, "with the one that failed")
	require.True(t, ended)
	require.Len(t, r.begin(streamDelivery(2, "a")), 1, "another run")
}

func TestAWholeRunIsHandedOutAtOnce(t *testing.T) {
	r := newRuns(true)
	a1, a2, a3 := streamDelivery(1, "a"), streamDelivery(2, "a"), streamDelivery(3, "a")
	require.Equal(t, []*Delivery{a1, a2, a3}, r.begin(a1, a2, a3))
	for _, d := range []*Delivery{a2, a1} {
		next, back, ended := r.after(d, false)
		require.Nil(t, next)
		require.Empty(t, back, "each is answered by its handler")
		require.False(t, ended)
	}
	_, _, ended := r.after(a3, true)
	require.True(t, ended)
}
