package join_test

import (
	"testing"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/join"
)

// Joins that do not know their steps from the start, and those that need not wait for all.

func TestJoinOpenTakesStepsUntilItIsSealed(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		id := f.Start(c, join.StartParams{Open: true})
		j := f.Join(c, id)
		f.True(j.Open)
		f.Zero(j.ExpectedSteps)
		f.False(f.JoinRow(id).Expected.Valid)

		f.AddSteps(c, id, "s", 2)
		f.EndSteps("s", 0)
		f.Stands(c, id, join.Pending, 2, 0)
		f.AddSteps(c, id, "s", 2)
		f.NoError(c.Seal(f.Context(), nil, id))
		j = f.Join(c, id)
		f.False(j.Open)
		f.Equal(4, j.ExpectedSteps)
		f.ErrorIs(c.Attach(f.Context(), nil, id, f.EnqueueN("late", 1)[0]), join.ErrFull)
		before := f.JoinRow(id)
		f.NoError(c.Seal(f.Context(), nil, id), "sealed it is already")
		f.Equal(before, f.JoinRow(id))
		f.EndSteps("s", 1)
		f.Stands(c, id, join.Failed, 3, 1)
		f.ErrorIs(c.Seal(f.Context(), nil, id), join.ErrEnded)

		counted := f.Start(c, join.StartParams{ExpectedSteps: 2})
		f.NoError(c.Seal(f.Context(), nil, counted), "what was never open stays as it is")
		f.Equal(2, f.Join(c, counted).ExpectedSteps)
	})
}

func TestJoinOpenEndsWhenItIsSealedLast(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		f.RunWaits(c)
		empty, done, failed := f.Start(c, join.StartParams{Open: true}), f.Start(c, join.StartParams{Open: true}), f.Start(c, join.StartParams{Open: true})
		f.AddSteps(c, done, "s", 2)
		f.EndSteps("s", 0)
		f.AddSteps(c, failed, "s", 2)
		f.EndSteps("s", 1)
		for _, end := range []struct {
			id                join.ID
			status            join.Status
			completed, failed int
		}{{empty, join.Completed, 0, 0}, {done, join.Completed, 2, 0}, {failed, join.Failed, 1, 1}} {
			wait := f.Wait(c, suite.Waits(end.id, "next", "failed"))
			f.Backdate(end.id)
			before := f.Now()
			f.NoError(c.Seal(f.Context(), nil, end.id))
			f.Stands(c, end.id, end.status, end.completed, end.failed)
			f.Between(before, f.Now(), f.JoinRow(end.id).Updated)
			f.Settle(suite.Settled(outbox.Ack, f.Continues(wait, "next"))...)
		}
		f.Equal(0, f.Join(c, empty).ExpectedSteps)
	})
}

func TestJoinSealedAndCancelledInTheCallersTransaction(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		id := f.Start(c, join.StartParams{Open: true})
		for _, commit := range []bool{false, true} {
			tx, err := f.DB.BeginTx(f.Context(), nil)
			f.NoError(err)
			_, err = c.Enqueue(f.Context(), tx, id, outbox.Message{Topic: "s"})
			f.NoError(err)
			f.NoError(c.Seal(f.Context(), tx, id))
			if commit {
				f.NoError(tx.Commit())
				f.Equal(int64(1), f.JoinRow(id).Expected.Int64)
			} else {
				f.NoError(tx.Rollback())
				f.False(f.JoinRow(id).Expected.Valid)
			}
		}
		f.Stands(c, id, join.Pending, 0, 0)
	})
}

// A quorum ends a join as soon as it is reached, or can no longer be.
func TestJoinQuorum(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		f.RunWaits(c)
		for _, run := range []struct {
			quorum, failures, successes int // in this order
			status                      join.Status
			completed, failed           int
			next                        string
		}{
			{2, 0, 1, join.Pending, 1, 0, ""},
			{2, 0, 2, join.Completed, 2, 0, "next"},
			{2, 1, 2, join.Completed, 2, 1, "next"},
			{2, 2, 1, join.Pending, 1, 2, ""},
			{2, 3, 0, join.Failed, 0, 3, "failed"}, // of four, two can complete no more
			{4, 1, 0, join.Failed, 0, 1, "failed"},
			{1, 3, 0, join.Pending, 0, 3, ""},
			{1, 3, 1, join.Completed, 1, 3, "next"},
			{1, 4, 0, join.Failed, 0, 4, "failed"},
		} {
			f.Clear()
			id := f.Start(c, join.StartParams{ExpectedSteps: 4, Quorum: run.quorum})
			f.Equal(run.quorum, f.Join(c, id).Quorum)
			f.AddSteps(c, id, "s", 4)
			wait := f.Wait(c, suite.Waits(id, "next", "failed")) // it goes by the status of such a join
			for i, s := range f.Claim("s")[:run.failures+run.successes] {
				if i < run.failures {
					f.Settle(suite.Settled(outbox.Fail, s)...)
				} else {
					f.Settle(suite.Settled(outbox.Ack, s)...)
				}
			}
			f.Stands(c, id, run.status, run.completed, run.failed)
			if run.next == "" {
				f.Equal(int(outbox.Ready), f.Row(wait).Status)
				continue
			}
			f.Equal(run.status.String(), f.Continues(wait, run.next).Headers[join.HeaderStatus])
		}

		// A step that is settled together with others can be one too many.
		id := f.Start(c, join.StartParams{ExpectedSteps: 4, Quorum: 2})
		f.AddSteps(c, id, "many", 4)
		f.EndSteps("many", 1)
		f.Stands(c, id, join.Completed, 3, 1)
	})
}

func TestJoinQuorumOfAnOpenJoin(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		reached := f.Start(c, join.StartParams{Open: true, Quorum: 2})
		f.AddSteps(c, reached, "s", 3)
		f.EndSteps("s", 1)
		f.Stands(c, reached, join.Completed, 2, 1)
		f.True(f.Join(c, reached).Open, "it ended before it was sealed")
		f.ErrorIs(c.Seal(f.Context(), nil, reached), join.ErrEnded)

		failing := f.Start(c, join.StartParams{Open: true, Quorum: 2})
		f.AddSteps(c, failing, "s", 3)
		f.EndSteps("s", 2)
		f.Stands(c, failing, join.Pending, 1, 2) // more steps may come
		f.NoError(c.Seal(f.Context(), nil, failing))
		f.Stands(c, failing, join.Failed, 1, 2)

		few := f.Start(c, join.StartParams{Open: true, Quorum: 2})
		f.AddSteps(c, few, "s", 1)
		f.NoError(c.Seal(f.Context(), nil, few))
		f.Stands(c, few, join.Failed, 0, 0) // one step cannot make two
	})
}

func TestJoinFailFastEndsAtTheFirstFailure(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		f.RunWaits(c)
		for _, params := range []join.StartParams{{ExpectedSteps: 3, FailFast: true}, {Open: true, FailFast: true}} {
			id := f.Start(c, params)
			f.True(f.Join(c, id).FailFast)
			f.AddSteps(c, id, "s", 3)
			wait := f.Wait(c, suite.Waits(id, "next", "failed"))
			held := f.Claim("s")
			f.Settle(suite.Settled(outbox.Ack, held[0])...)
			f.Stands(c, id, join.Pending, 1, 0)
			f.Settle(suite.Settled(outbox.Fail, held[1])...)
			f.Stands(c, id, join.Failed, 1, 1)
			next := f.Continues(wait, "failed")
			f.Equal("failed", next.Headers[join.HeaderStatus])
			f.Settle(suite.Settled(outbox.Ack, next, held[2])...)
		}
		good := f.Start(c, join.StartParams{ExpectedSteps: 2, FailFast: true})
		f.AddSteps(c, good, "s", 2)
		f.EndSteps("s", 0)
		f.Stands(c, good, join.Completed, 2, 0)
	})
}
