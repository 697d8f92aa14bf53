package cost_test

import (
	"os"
	"slices"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/join"
)

// Attaching steps costs the same in a join that has very many as in an empty one.
func TestLong_AttachToALargeJoin(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		const batch = 1000
		batches, full := 5, os.Getenv("OUTBOX_TEST_STATISTICS") == "full"
		if full {
			batches = 100
		}
		c := f.Joins()
		large := f.Start(c, join.StartParams{ExpectedSteps: 1 << 20})
		var took []time.Duration
		var sum time.Duration
		for range batches {
			ids := f.EnqueueN("steps", batch)
			started := time.Now()
			f.NoError(c.Attach(f.Context(), f.DB, large, ids...))
			took = append(took, time.Since(started))
			sum += took[len(took)-1]
		}
		f.Len(f.joinStepsOf(c, large, 10), 10)
		if full {
			first, last := suite.Median(slices.Clone(took[:10])), suite.Median(slices.Clone(took[batches-10:]))
			f.figure(map[string]any{"figure": "attach 100,000 steps", "seconds": sum.Seconds(),
				"first_ms_a_thousand": first.Milliseconds(), "last_ms_a_thousand": last.Milliseconds()})
			f.Less(sum, 15*time.Second)
			f.Less(last, 5*first, "a thousand steps take longer in a large join, and not because less of it is in the cache")
		}
		if f.DB.Name == testdb.Postgres {
			free := f.EnqueueN("free", 10)
			for _, plans := range []string{"force_custom_plan", "force_generic_plan"} {
				f.readsLittle("attach to a large join", plans, func(c *counted) error {
					return c.joins.Attach(c.Context(), c.x, large, free...)
				})
			}
		}
	})
}

func (f *fixture) joinStepsOf(c *join.Coordinator, id join.ID, limit int) []join.Step {
	f.T.Helper()
	steps, err := c.Steps(f.Context(), f.DB, id, outbox.MessageID{}, limit)
	f.NoError(err)
	return steps
}
