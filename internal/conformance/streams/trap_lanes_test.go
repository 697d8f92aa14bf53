package streams_test

import (
	"fmt"
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

// Of what has arrived, as much is counted as the limit says: a topic in one lane was not listed at all behind so much in another,
// however long it had waited.
func TestTrap_ABacklogInOneLaneHidesNoTopicOfAnother(t *testing.T) {
	forEach(t, func(_ *testing.T, f *fixture) {
		if f.DB.Name != testdb.Postgres {
			return
		}
		const topics = 20
		for i := range topics {
			f.Ordered(fmt.Sprint("orders ", i), 1, 1)
		}
		f.Ordered("behind", 40, 1)
		f.EqualValues(4, f.Number("SELECT count(DISTINCT a.lane) FROM {outbox_arrival} AS a WHERE a.seq <= %d", topics))
		f.EqualValues(topics+1, f.Number("SELECT count(*) FROM %s('{\"limit\": %d}')", f.Object("outbox_stream_topics"), topics+1))
	})
}
