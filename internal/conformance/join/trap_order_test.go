package join_test

import (
	"testing"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/join"
)

// A wait held the row of its join while it waited for that of the parent, although the join had ended. A settle of steps that came
// too late for it counted them in both joins, in order of their ids, and held the parent's: each waited for the other.
func TestTrap_AWaitLocksNoJoinThatHasEnded(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Needs(suite.ConcurrentWriters, suite.SkipLocked, separateProcedures)
		c := f.Joins()
		parent := f.Start(c, join.StartParams{ExpectedSteps: 2})
		f.AddSteps(c, parent, "step", 1)
		child, _ := f.StartWith(c, "step", 1)
		f.NoError(c.AttachJoin(f.Context(), nil, parent, child))
		steps := f.Claim("step")
		f.Len(steps, 2)
		f.NoError(c.Cancel(f.Context(), nil, child))
		msg, done := f.deliverWait()

		looking, counting := f.Lane(""), f.Lane("")
		looked := looking.StopAfterLook()
		handled := looking.Run(func() error { return looking.Joins.HandleWait(msg) })
		suite.Take(f.T, looked.Reached, "the look at the join")
		f.quickly(counting, "a settle", func() error { return counting.SettleOn(counting.DB, suite.Settled(outbox.Ack, steps...)...) })
		close(looked.Leave)
		looking.Ended(handled)
		done()
		f.Counted(parent, join.Failed, 1, 1, 0)
	})
}
