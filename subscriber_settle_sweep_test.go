package outbox

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSweepsAreRareWhileHandlersAreSlow(t *testing.T) {
	t.Parallel()
	sweeps := newSweepTimer()
	defer sweeps.stop()
	sweeps.set(true, false, false)
	require.Nil(t, sweeps.next, "nothing is open")
	sweeps.set(false, true, true)
	require.NotNil(t, sweeps.next)
	require.Equal(t, sweepFast, sweeps.interval)
	for range 10 {
		sweeps.set(true, true, false)
	}
	require.Equal(t, sweepSlow, sweeps.interval)
	sweeps.set(false, true, false)
	require.Equal(t, sweepSlow, sweeps.interval, "an answer of a stream alone is no sweep")
	sweeps.set(true, true, true)
	require.Equal(t, sweepFast, sweeps.interval)
	sweeps.set(true, false, true)
	require.Nil(t, sweeps.next)
}
