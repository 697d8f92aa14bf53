package outbox

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/incursa/watermill-outbox/internal/base"
)

// A database is told whole milliseconds: delays that differ by less are one group.
func TestSettlementsOfOneDelayAreOneGroup(t *testing.T) {
	owner := base.NewOwnerToken()
	var settlements []Settlement
	for i, delay := range []time.Duration{3 * time.Second, 3*time.Second + 900*time.Microsecond, time.Microsecond, noDelay} {
		settlements = append(settlements, Settlement{Receipt: Receipt{WorkItemID(i + 1), owner}, Outcome: Release, Delay: delay})
	}
	groups := groupSettlements(settlements, false)
	require.Len(t, groups, 3)
	require.Equal(t, []WorkItemID{1, 2}, groups[0].Seqs)
	require.EqualValues(t, []int64{3000, 1, 0}, []int64{*groups[0].DelayMS, *groups[1].DelayMS, *groups[2].DelayMS}, "a short delay is not none")
}
