package conformance

import (
	"testing"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/join"
)

// Steps of joins may be in streams: each counts when it ends, in a stream that goes on, is blocked, or is skipped.
func TestStream_StepsOfJoins(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		joins := f.joins()
		counted := func(id join.ID, completed, failed int) {
			t.Helper()
			j, err := joins.Get(f.ctx(), nil, id)
			f.NoError(err)
			f.Equal([]int{completed, failed}, []int{j.CompletedSteps, j.FailedSteps})
		}
		id := f.start(joins, join.StartParams{ExpectedSteps: 4})
		_, err := joins.Enqueue(f.ctx(), nil, id, orderedMessages("steps", 1, 0, 3)...)
		f.NoError(err)
		later := f.enqueue(orderedMessages("steps", 1, 3, 4)...)

		held := f.claimUpTo(2, "steps")
		f.settle(settled(outbox.Ack, held[0])[0], retried(held[1]))
		counted(id, 1, 0)
		f.NoError(joins.Attach(f.ctx(), nil, id, later...), "one that waits in its stream")
		counted(id, 1, 0)

		held = f.claim("steps")
		f.Equal([]string{"1", "2", "3"}, uuids(held))
		f.settle(append(settled(outbox.Fail, held[0]), settled(outbox.Release, held[1:]...)...)...)
		counted(id, 1, 1)
		f.NoError(f.outbox.SkipHead(f.ctx(), "steps", streamKey(0)))
		f.settle(settled(outbox.Ack, f.claim("steps")...)...)
		counted(id, 3, 1)
		j, err := joins.Get(f.ctx(), nil, id)
		f.NoError(err)
		f.Equal(join.Failed, j.Status)
	})
}
