package outbox

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/incursa/watermill-outbox/internal/base"
)

// A claim's leases end early only once all its messages are settled; the leases of messages that were dropped otherwise
// expire.
func TestClaimsAreOverWhenTheirLastMessageIsSettled(t *testing.T) {
	h := newHoldings()
	whole, torn := base.NewOwnerToken(), base.NewOwnerToken()
	claim := func(owner OwnerToken, n int) (deliveries []*Delivery) {
		for seq := range n {
			deliveries = append(deliveries, &Delivery{claimed: Claimed{Receipt: Receipt{WorkItemID(seq + 1), owner}}})
		}
		h.add(deliveries, time.Now())
		return deliveries
	}
	a, b := claim(whole, 3), claim(torn, 2)
	h.finish(a[:2]...)
	require.Empty(t, h.claimsOver())
	h.remove(b[0])
	h.finish(b[1], a[2])
	require.Equal(t, []OwnerToken{whole}, h.claimsOver())
	require.Empty(t, h.claimsOver(), "each is told once")
	require.True(t, h.none())
}
