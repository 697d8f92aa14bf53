package stores_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/incursa/watermill-outbox/stores"
)

// A Discovery that ignores its context is left behind, and Close says so. Nor does a Refresh wait for it longer than its own
// context. By a clock that the test moves.
func TestTrap_CloseSaysThatTheDiscoveryHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs, release := make(chan struct{}), make(chan struct{})
		calls := 0
		d, err := stores.NewDynamic(t.Context(), stores.DiscoveryFunc(func(context.Context) ([]stores.Database, error) {
			if calls++; calls > 1 {
				close(hangs)
				<-release
			}
			return nil, nil
		}), stores.DynamicConfig{}, nil)
		require.NoError(t, err)
		<-hangs

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		refreshed := make(chan error, 1)
		go func() { refreshed <- d.Refresh(ctx) }()
		select {
		case err := <-refreshed:
			require.ErrorIs(t, err, context.DeadlineExceeded)
		case <-time.After(time.Minute):
			t.Error("Refresh waits for another without heeding its context")
		}

		begun := time.Now()
		for range 2 {
			if err := d.Close(); err == nil {
				t.Error("Close has left the Discovery behind without a word")
			} else {
				require.ErrorContains(t, err, "Discovery")
			}
		}
		require.Less(t, time.Since(begun), time.Minute)
		close(release)
		synctest.Wait()
		require.NoError(t, d.Close(), "it is over")
	})
}
