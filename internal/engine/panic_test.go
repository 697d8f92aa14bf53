package engine_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/incursa/watermill-outbox/internal/dialect"
	"github.com/incursa/watermill-outbox/internal/engine"
)

// A panicking database has a driver that panics at each statement of the outbox, as one with hooks may.
type panicking struct{ refusing }

func (p panicking) Connect(context.Context) (driver.Conn, error) { return p, nil }

func (panicking) ExecContext(context.Context, string, []driver.NamedValue) (driver.Result, error) {
	panic("boom")
}

// Who recovers, such as a router or a publisher of batches, goes on with the same pool.
func TestTrap_ADriverThatPanicsKeepsNoConnection(t *testing.T) {
	for _, d := range []dialect.Dialect{dialect.SQLServer{}, dialect.SQLite{}} {
		db := sql.OpenDB(panicking{})
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		e, err := engine.New(d, "", "", nil)
		require.NoError(t, err)
		require.PanicsWithValue(t, "boom", func() { _ = e.Do(t.Context(), db, "outbox_enqueue_one", make([]any, 10)) })
		require.Zero(t, db.Stats().OpenConnections, "it may be in the middle of a transaction")
	}
}
