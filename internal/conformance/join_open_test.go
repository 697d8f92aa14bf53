package conformance

import (
	"testing"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/join"
)

// Joins that do not know their steps from the start, and those that need not wait for all.

func TestJoinOpenTakesStepsUntilItIsSealed(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		id := f.start(c, join.StartParams{Open: true})
		j := f.join(c, id)
		f.True(j.Open)
		f.Zero(j.ExpectedSteps)
		f.False(f.joinRow(id).expected.Valid)

		f.addSteps(c, id, "s", 2)
		f.endSteps("s", 0)
		f.stands(c, id, join.Pending, 2, 0)
		f.addSteps(c, id, "s", 2)
		f.NoError(c.Seal(f.ctx(), nil, id))
		j = f.join(c, id)
		f.False(j.Open)
		f.Equal(4, j.ExpectedSteps)
		f.ErrorIs(c.Attach(f.ctx(), nil, id, f.enqueueN("late", 1)[0]), join.ErrFull)
		before := f.joinRow(id)
		f.NoError(c.Seal(f.ctx(), nil, id), "sealed it is already")
		f.Equal(before, f.joinRow(id))
		f.endSteps("s", 1)
		f.stands(c, id, join.Failed, 3, 1)
		f.ErrorIs(c.Seal(f.ctx(), nil, id), join.ErrEnded)

		counted := f.start(c, join.StartParams{ExpectedSteps: 2})
		f.NoError(c.Seal(f.ctx(), nil, counted), "what was never open stays as it is")
		f.Equal(2, f.join(c, counted).ExpectedSteps)
	})
}

func TestJoinOpenEndsWhenItIsSealedLast(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		f.runWaits(c)
		empty, done, failed := f.start(c, join.StartParams{Open: true}), f.start(c, join.StartParams{Open: true}), f.start(c, join.StartParams{Open: true})
		f.addSteps(c, done, "s", 2)
		f.endSteps("s", 0)
		f.addSteps(c, failed, "s", 2)
		f.endSteps("s", 1)
		for _, end := range []struct {
			id                join.ID
			status            join.Status
			completed, failed int
		}{{empty, join.Completed, 0, 0}, {done, join.Completed, 2, 0}, {failed, join.Failed, 1, 1}} {
			wait := f.wait(c, waits(end.id, "next", "failed"))
			f.backdate(end.id)
			before := f.now()
			f.NoError(c.Seal(f.ctx(), nil, end.id))
			f.stands(c, end.id, end.status, end.completed, end.failed)
			f.between(before, f.now(), f.joinRow(end.id).updated)
			f.settle(settled(outbox.Ack, f.continues(wait, "next"))...)
		}
		f.Equal(0, f.join(c, empty).ExpectedSteps)
	})
}

func TestJoinSealedAndCancelledInTheCallersTransaction(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		id := f.start(c, join.StartParams{Open: true})
		for _, commit := range []bool{false, true} {
			tx, err := f.db.BeginTx(f.ctx(), nil)
			f.NoError(err)
			_, err = c.Enqueue(f.ctx(), tx, id, outbox.Message{Topic: "s"})
			f.NoError(err)
			f.NoError(c.Seal(f.ctx(), tx, id))
			if commit {
				f.NoError(tx.Commit())
				f.Equal(int64(1), f.joinRow(id).expected.Int64)
			} else {
				f.NoError(tx.Rollback())
				f.False(f.joinRow(id).expected.Valid)
			}
		}
		f.stands(c, id, join.Pending, 0, 0)
	})
}

// A quorum ends a join as soon as it is reached, or can no longer be.
func TestJoinQuorum(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		f.runWaits(c)
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
			f.clear()
			id := f.start(c, join.StartParams{ExpectedSteps: 4, Quorum: run.quorum})
			f.Equal(run.quorum, f.join(c, id).Quorum)
			f.addSteps(c, id, "s", 4)
			wait := f.wait(c, waits(id, "next", "failed")) // it goes by the status of such a join
			for i, s := range f.claim("s")[:run.failures+run.successes] {
				if i < run.failures {
					f.settle(settled(outbox.Fail, s)...)
				} else {
					f.settle(settled(outbox.Ack, s)...)
				}
			}
			f.stands(c, id, run.status, run.completed, run.failed)
			if run.next == "" {
				f.Equal(int(outbox.Ready), f.row(wait).status)
				continue
			}
			f.Equal(run.status.String(), f.continues(wait, run.next).Headers[join.HeaderStatus])
		}

		// A step that is settled together with others can be one too many.
		id := f.start(c, join.StartParams{ExpectedSteps: 4, Quorum: 2})
		f.addSteps(c, id, "many", 4)
		f.endSteps("many", 1)
		f.stands(c, id, join.Completed, 3, 1)
	})
}

func TestJoinQuorumOfAnOpenJoin(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		reached := f.start(c, join.StartParams{Open: true, Quorum: 2})
		f.addSteps(c, reached, "s", 3)
		f.endSteps("s", 1)
		f.stands(c, reached, join.Completed, 2, 1)
		f.True(f.join(c, reached).Open, "it ended before it was sealed")
		f.ErrorIs(c.Seal(f.ctx(), nil, reached), join.ErrEnded)

		failing := f.start(c, join.StartParams{Open: true, Quorum: 2})
		f.addSteps(c, failing, "s", 3)
		f.endSteps("s", 2)
		f.stands(c, failing, join.Pending, 1, 2) // more steps may come
		f.NoError(c.Seal(f.ctx(), nil, failing))
		f.stands(c, failing, join.Failed, 1, 2)

		few := f.start(c, join.StartParams{Open: true, Quorum: 2})
		f.addSteps(c, few, "s", 1)
		f.NoError(c.Seal(f.ctx(), nil, few))
		f.stands(c, few, join.Failed, 0, 0) // one step cannot make two
	})
}

func TestJoinFailFastEndsAtTheFirstFailure(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		f.runWaits(c)
		for _, params := range []join.StartParams{{ExpectedSteps: 3, FailFast: true}, {Open: true, FailFast: true}} {
			id := f.start(c, params)
			f.True(f.join(c, id).FailFast)
			f.addSteps(c, id, "s", 3)
			wait := f.wait(c, waits(id, "next", "failed"))
			held := f.claim("s")
			f.settle(settled(outbox.Ack, held[0])...)
			f.stands(c, id, join.Pending, 1, 0)
			f.settle(settled(outbox.Fail, held[1])...)
			f.stands(c, id, join.Failed, 1, 1)
			next := f.continues(wait, "failed")
			f.Equal("failed", next.Headers[join.HeaderStatus])
			f.settle(settled(outbox.Ack, next, held[2])...)
		}
		good := f.start(c, join.StartParams{ExpectedSteps: 2, FailFast: true})
		f.addSteps(c, good, "s", 2)
		f.endSteps("s", 0)
		f.stands(c, good, join.Completed, 2, 0)
	})
}
