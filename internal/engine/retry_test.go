package engine_test

import (
	"database/sql"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/incursa/watermill-outbox/internal/dialect"
	"github.com/incursa/watermill-outbox/internal/engine"
)

// busy is SQLite's error when a lock was not free in time.
type busy struct{}

func (busy) Error() string { return "database is locked" }
func (busy) Code() int     { return 5 }

// Who publishes without the transaction that is open around the call waits for itself: that ends, and says why.
func TestRetryingEndsWhenEachTryWaitsForALock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, err := engine.New(dialect.SQLite{}, "", "", nil)
		require.NoError(t, err)
		tries := 0
		err = e.Retry(t.Context(), new(sql.DB), func() error {
			tries++
			<-time.After(10 * time.Second) // its busy_timeout
			return busy{}
		})
		require.ErrorIs(t, err, busy{})
		require.ErrorContains(t, err, "pass it on with InTx or WithTx")
		require.Equal(t, 3, tries)
	})
}
