package conformance

import (
	"context"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/join"
)

// What is deleted of joins and of their messages, and what is not.

func (f *fixture) purgeJoins(c *join.Coordinator, olderThan time.Duration) int {
	f.t.Helper()
	n, err := c.Purge(f.ctx(), olderThan)
	f.NoError(err)
	return n
}

func (f *fixture) purge(params outbox.PurgeParams) int {
	f.t.Helper()
	n, err := f.outbox.Purge(f.ctx(), params)
	f.NoError(err)
	return n
}

func TestJoinPurgeDeletesEndedJoinsByAge(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		pending, _ := f.startWith(c, "pending", 2)
		young, _ := f.startWith(c, "s", 2)
		old, _ := f.startWith(c, "s", 2)
		f.endSteps("s", 1)
		cancelled := f.start(c, join.StartParams{Open: true})
		f.NoError(c.Cancel(f.ctx(), nil, cancelled))
		for _, id := range []join.ID{pending, old, cancelled} {
			f.backdate(id)
		}
		f.exec("UPDATE {join} SET {created} = {past} WHERE {join_id} = '%s'", young) // it began long ago and ended now
		f.Zero(f.purgeJoins(c, 2*time.Hour))
		f.Zero(f.purgeJoins(c, 60*24*time.Hour), "an age beyond what an int of milliseconds holds")
		f.Equal(2, f.purgeJoins(c, 30*time.Minute))
		f.Equal(2, f.joinCount())
		f.Equal(2, f.joinRow(young).members)
		for _, table := range []string{"join", "member", "size", "wait"} {
			f.Zero(f.number("SELECT COUNT(*) FROM {%s} WHERE {join_id} = '%s'", table, old))
		}
		f.Eventually(func() bool { return f.now().After(f.joinRow(young).updated) }, patience, time.Millisecond)
		f.Equal(1, f.purgeJoins(c, 0))
		f.Zero(f.purgeJoins(c, 0), "a pending join is never deleted")
		f.stands(c, pending, join.Pending, 0, 0)
		f.Equal(2, f.joinRow(pending).members)
		f.Equal(6, f.count(), "nor is any message")
		f.endSteps("pending", 0)
		f.stands(c, pending, join.Completed, 2, 0)
	})
}

func TestJoinPurgeTakesMoreThanABatch(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		large := f.start(c, join.StartParams{Open: true})
		steps := make([]outbox.MessageID, 2500)
		for i := range steps {
			steps[i] = outbox.MessageID(base.NewOwnerToken())
		}
		f.NoError(c.AttachByReport(f.ctx(), nil, large, steps...))
		f.NoError(c.Cancel(f.ctx(), nil, large))
		small := f.start(c, join.StartParams{Open: true})
		f.NoError(c.Seal(f.ctx(), nil, small))
		f.backdate(large)
		f.backdate(small)
		ctx, cancel := context.WithCancel(f.ctx())
		cancel()
		_, err := c.Purge(ctx, 0)
		f.ErrorIs(err, context.Canceled)
		f.Equal(2, f.purgeJoins(c, time.Minute))
		f.Zero(f.joinCount())
		f.Zero(f.number("SELECT COUNT(*) FROM {member}"))
	})
}

// A wait that has not continued yet needs its join, however long nobody has run the handler.
func TestJoinPurgeSparesWhatAMessageStillWaitsFor(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		id, _ := f.startWith(c, "s", 1)
		parent := f.start(c, join.StartParams{ExpectedSteps: 1})
		f.NoError(c.AttachJoin(f.ctx(), nil, parent, id))
		wait := f.wait(c, waits(id, "next", ""))
		f.endSteps("s", 0)
		f.backdate(id)
		f.Zero(f.purgeJoins(c, time.Minute))
		f.runWaits(c)
		f.continues(wait, "next")
		f.Eventually(func() bool { return f.joinRow(parent).status != 0 }, patience, time.Millisecond)
		f.Equal(1, f.purgeJoins(c, time.Minute))
	})
}

// A parent may end, by being cancelled, and be purged while its child goes on.
func TestTrap_AParentThatIsPurgedFirst(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		child, _ := f.startWith(c, "s", 1)
		parent := f.start(c, join.StartParams{ExpectedSteps: 1})
		f.NoError(c.AttachJoin(f.ctx(), nil, parent, child))
		f.NoError(c.Cancel(f.ctx(), nil, parent))
		f.backdate(parent)
		f.Equal(1, f.purgeJoins(c, time.Minute))
		f.endSteps("s", 0)
		f.backdate(child)
		f.Zero(f.purgeJoins(c, time.Minute), "the wait has yet to be handled")
		f.runWaits(c)
		f.Eventually(func() bool { return f.number("SELECT COUNT(*) FROM {all} WHERE {status} <> 2") == 0 }, patience, time.Millisecond)
		f.Equal(1, f.purgeJoins(c, time.Minute))
		f.Zero(f.joinCount())
	})
}

func TestJoinKeepsTheMessagesOfPendingJoinsFromPurge(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		// More than a batch of them, and older than all others.
		id := f.start(c, join.StartParams{Open: true})
		f.addSteps(c, id, "s", 1100)
		shared := f.start(c, join.StartParams{ExpectedSteps: 1})
		for range 2 {
			claimed := f.claimWith(outbox.ClaimParams{Topics: quotas("s"), Limit: 1000})
			if f.joinRow(shared).members == 0 {
				f.NoError(c.Attach(f.ctx(), nil, shared, claimed[0].ID)) // a step also of a join that ends
			}
			f.settle(append(settled(outbox.Fail, claimed[1]), append(settled(outbox.Ack, claimed[:1]...), settled(outbox.Ack, claimed[2:]...)...)...)...)
		}
		f.exec("UPDATE {outbox} SET {created_at} = {past}")
		f.exec("UPDATE {outbox_state} SET {processed_at} = {past}")
		f.enqueueN("free", 3)
		free := f.claim("free")
		f.settle(append(settled(outbox.Ack, free[:2]...), settled(outbox.Fail, free[2])...)...)
		f.Eventually(func() bool { return f.now().After(f.row(free[2].ID).processed) }, patience, time.Millisecond)
		f.Equal(2, f.purge(outbox.PurgeParams{}))
		f.Equal(1, f.purge(outbox.PurgeParams{Failed: true}))
		f.Equal(1100, f.count())
		f.stands(c, shared, join.Completed, 1, 0)

		f.NoError(c.Seal(f.ctx(), nil, id))
		f.Equal(1098, f.purge(outbox.PurgeParams{}))
		f.Equal(2, f.purge(outbox.PurgeParams{Failed: true}))
		f.stands(c, id, join.Failed, 1098, 2)
		f.Equal(1100, f.joinRow(id).members, "the join itself is for its own purge")
	})
}

func TestJoinKeepsTheMessagesOfPendingJoinsFromDeleteOnAck(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		deleting := f.newOutbox(f.db.DB, func(c *outbox.Config) { c.DeleteOnAck = true })
		id, _ := f.startWith(c, "s", 2)
		cancelled, late := f.startWith(c, "late", 1)
		f.NoError(c.Cancel(f.ctx(), nil, cancelled))
		free := f.claimOne("free")
		steps := f.claim("s")
		ack := func(claimed ...outbox.Claimed) {
			refused, err := deleting.Settle(f.ctx(), f.db.DB, settled(outbox.Ack, claimed...))
			f.NoError(err)
			f.Empty(refused)
		}
		ack(free, steps[0])
		f.Empty(f.rows("{message_id} = '%s'", free.ID), "what is no step is deleted")
		f.Equal(int(outbox.Done), f.row(steps[0].ID).status, "a step is kept while its join is pending")
		f.stands(c, id, join.Pending, 1, 0)
		ack(steps[1])
		f.stands(c, id, join.Completed, 2, 0)
		ack(f.claim("late")...)
		f.Equal(join.StepCompleted, f.step(cancelled, late[0]), "a step that ends after its join has ended, too")

		// The kept rows are for Purge, once the join has ended.
		f.exec("UPDATE {outbox} SET {created_at} = {past}")
		f.exec("UPDATE {outbox_state} SET {processed_at} = {past}")
		f.purge(outbox.PurgeParams{})
		f.Zero(f.count())
	})
}
