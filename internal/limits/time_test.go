package limits

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// The parts of a lease leave time for a second try.
func TestATimeLimitIsAPartOfTheLease(t *testing.T) {
	for _, lease := range []time.Duration{2 * time.Second, DefaultLease, 5 * time.Minute, 24 * time.Hour} {
		assert.LessOrEqual(t, RenewEvery(lease)+2*Renewing(lease), Trusted(lease))
		assert.Less(t, Trusted(lease), lease)
		assert.LessOrEqual(t, Reading(lease)+RenewEvery(lease)+Renewing(lease), lease)
		for _, limit := range []func(time.Duration) time.Duration{Renewing, Settling, Claiming, Reading, Stamping, Reaping, Upkeep} {
			assert.LessOrEqual(t, limit(lease), min(lease, mostTime))
			assert.GreaterOrEqual(t, limit(lease), leastTime)
		}
	}
	assert.Equal(t, leastTime, Renewing(time.Millisecond))
	assert.Equal(t, time.Millisecond, RenewEvery(time.Millisecond))
}
