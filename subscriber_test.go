package outbox

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Handlers have four fifths of the time that is left, however long that is.
func TestTrap_ShutdownLeavesHandlersTheirTimeBeforeAFarDeadline(t *testing.T) {
	for left, want := range map[time.Duration]time.Duration{
		10 * time.Second:           8 * time.Second,
		100 * 365 * 24 * time.Hour: 80 * 365 * 24 * time.Hour,
		math.MaxInt64:              math.MaxInt64 / 5 * 4,
	} {
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			ctx, cancel := context.WithDeadline(t.Context(), begun.Add(left))
			defer cancel()
			var had time.Duration
			s := &Subscriber{started: true, closing: make(chan struct{}), closed: make(chan struct{})}
			s.expire = func() {
				had = time.Since(begun)
				close(s.closed)
			}
			require.NoError(t, s.Shutdown(ctx))
			require.Equal(t, want, had)
		})
	}
}
