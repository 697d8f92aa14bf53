package streams_test

import (
	"testing"

	"github.com/incursa/watermill-outbox/internal/testdb"
)

// Claims route at the same time: while one holds the router of a lane until it commits, others route the rest. Only PostgreSQL
// has several lanes.
func TestTrap_ALaneThatIsBeingRoutedHoldsUpNoOther(t *testing.T) {
	forEach(t, func(_ *testing.T, f *fixture) {
		if f.DB.Name != testdb.Postgres {
			return
		}
		const streams = 40
		f.Ordered("orders", streams, 1)
		held := int(f.Number("SELECT count(*) FROM {outbox_arrival} WHERE lane = 0"))
		f.Positive(held)
		f.Less(held, streams)

		tx, err := f.DB.BeginTx(f.Context(), nil)
		f.NoError(err)
		var lane int
		f.NoError(tx.QueryRowContext(f.Context(), "SELECT lane FROM "+f.Object("outbox_router")+" WHERE lane = 0 FOR UPDATE").Scan(&lane))
		f.Len(f.Claim("orders"), streams-held)
		f.NoError(tx.Rollback())
		f.Len(f.Claim("orders"), held)
	})
}
