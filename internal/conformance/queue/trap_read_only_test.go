package queue_test

import (
	"testing"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/testdb"
)

// A pool that was connected to a standby, as after a failover with an old DNS entry, gives such connections up when it is refused
// a write, and goes on with others. The outcome is known.
func TestTrap_ConnectionsToAStandby(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		if f.DB.Name != testdb.Postgres {
			return // only there a session can be made as a standby's are
		}
		pool := f.DB.Reopen(t)
		pool.SetMaxOpenConns(1)
		o := f.NewOutbox(pool.DB)
		connected := func() {
			_, err := pool.ExecContext(f.Context(), "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY")
			f.NoError(err)
		}
		connected()
		_, err := o.Enqueue(f.Context(), pool.DB, outbox.Message{Topic: "orders"})
		f.NoError(err)
		connected()
		claimed, err := o.Claim(f.Context(), outbox.ClaimParams{Topics: suite.Quotas("orders")})
		f.NoError(err)
		f.Len(claimed, 1)
		connected()
		f.NoError(o.Ack(f.Context(), claimed[0].Receipt.Owner, claimed[0].Receipt.Seq))
	})
}
