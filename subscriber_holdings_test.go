package outbox

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/incursa/watermill-outbox/internal/base"
)

// A lease ends by the caller's word only once all that its claim has taken is settled; of what was let go of otherwise the
// lease runs out.
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
