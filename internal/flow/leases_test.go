package flow_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/flow"
)

type held struct {
	owner base.OwnerToken
	seq   int
}

func (h held) claim() base.OwnerToken { return h.owner }

// A claim's leases end early only once all its messages are settled; the leases of messages that were dropped otherwise
// expire.
func TestClaimsAreOverWhenTheirLastMessageIsSettled(t *testing.T) {
	leases := flow.NewLeases(held.claim)
	whole, torn := base.NewOwnerToken(), base.NewOwnerToken()
	claim := func(owner base.OwnerToken, n int) (messages []held) {
		for seq := range n {
			messages = append(messages, held{owner, seq})
		}
		leases.Add(messages, time.Now())
		return messages
	}
	a, b := claim(whole, 3), claim(torn, 2)
	leases.Finish(a[:2]...)
	require.Empty(t, leases.ClaimsOver())
	leases.Remove(b[0])
	leases.Finish(b[1], a[2])
	require.Equal(t, []base.OwnerToken{whole}, leases.ClaimsOver())
	require.Empty(t, leases.ClaimsOver(), "each is told once")
	require.True(t, leases.None())
}

func TestALeaseIsAsOldAsTheCallThatGaveIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leases := flow.NewLeases(held.claim)
		renewed, locked := held{seq: 1}, held{seq: 2}
		leases.Add([]held{renewed, locked}, time.Now())
		<-time.After(time.Minute)
		require.Len(t, leases.Older(time.Minute), 2)
		require.False(t, leases.InTouch(time.Minute))

		leases.Renewed([]held{renewed, locked}, map[held]bool{locked: true}, time.Now())
		require.True(t, leases.InTouch(time.Minute), "the database has answered for both")
		require.Equal(t, []held{locked}, leases.Older(time.Minute), "but has not renewed the locked one")
		require.True(t, leases.Over(locked, time.Minute))
		require.False(t, leases.Over(renewed, time.Minute))
		require.True(t, leases.Over(held{seq: 3}, time.Minute), "what is not held is over")

		require.Equal(t, []held{locked}, leases.End(time.Minute))
		require.Empty(t, leases.End(time.Minute), "each ends once")
		require.Zero(t, leases.Oldest(), "what has ended does not count")
	})
}
