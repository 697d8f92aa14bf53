package streams_test

import (
	"testing"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/join"
)

// Steps of joins may be in streams: each counts when it ends, in a stream that goes on, is blocked, or is skipped.
func TestStream_StepsOfJoins(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		joins := f.Joins()
		counted := func(id join.ID, completed, failed int) {
			t.Helper()
			j, err := joins.Get(f.Context(), nil, id)
			f.NoError(err)
			f.Equal([]int{completed, failed}, []int{j.CompletedSteps, j.FailedSteps})
		}
		id := f.Start(joins, join.StartParams{ExpectedSteps: 4})
		_, err := joins.Enqueue(f.Context(), nil, id, suite.OrderedMessages("steps", 1, 0, 3)...)
		f.NoError(err)
		later := f.Enqueue(suite.OrderedMessages("steps", 1, 3, 4)...)

		held := f.ClaimUpTo(2, "steps")
		f.Settle(suite.Settled(outbox.Ack, held[0])[0], suite.Retried(held[1]))
		counted(id, 1, 0)
		f.NoError(joins.Attach(f.Context(), nil, id, later...), "one that waits in its stream")
		counted(id, 1, 0)

		held = f.Claim("steps")
		f.Equal([]string{"1", "2", "3"}, suite.UUIDs(held))
		f.Settle(append(suite.Settled(outbox.Fail, held[0]), suite.Settled(outbox.Release, held[1:]...)...)...)
		counted(id, 1, 1)
		f.NoError(f.Outbox.SkipHead(f.Context(), "steps", suite.StreamKey(0)))
		f.Settle(suite.Settled(outbox.Ack, f.Claim("steps")...)...)
		counted(id, 3, 1)
		j, err := joins.Get(f.Context(), nil, id)
		f.NoError(err)
		f.Equal(join.Failed, j.Status)
	})
}
