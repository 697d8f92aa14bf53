package cost_test

import (
	"database/sql"
	"testing"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/join"
)

// Ending steps, and attaching what has ended, reads those messages and their joins, however many others there are and have
// been. What the database has counted before may be wrong by then: no message had ended when it counted.
func TestLong_EndingStepsReadsTensOfRows(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.load(f.backlog() / 10)
		c := f.Joins()
		for range 200 {
			f.StartWith(c, "steps", 50)
		}
		for _, analyzed := range []bool{false, true} {
			f.Remove("{status} = 2")
			if analyzed {
				f.analyze()
			}
			f.Empty(f.Settle(suite.Settled(outbox.Ack, f.ClaimWith(outbox.ClaimParams{Topics: suite.Quotas("steps"), Limit: 1000})...)...))
			held := f.ClaimWith(outbox.ClaimParams{Topics: suite.Quotas("steps"), Limit: 1000})[:10] // of all that are held
			f.cost(func(o *outbox.Outbox, db *sql.DB) {
				refused, err := o.Settle(f.Context(), db, suite.Settled(outbox.Ack, held...))
				f.NoError(err)
				f.Empty(refused)
			})
			another := f.Start(c, join.StartParams{ExpectedSteps: len(held)})
			f.cost(func(_ *outbox.Outbox, db *sql.DB) {
				for _, h := range held {
					f.NoError(c.Attach(f.Context(), db, another, h.ID))
				}
			})
			f.Stands(c, another, join.Completed, len(held), 0)
		}
	})
}
