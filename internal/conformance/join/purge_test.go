package join_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/seam"
	"github.com/incursa/watermill-outbox/join"
)

// What is deleted of joins and of their messages, and what is not.

func (f *fixture) purgeJoins(c *join.Coordinator, olderThan time.Duration) int {
	f.T.Helper()
	n, err := c.Purge(f.Context(), olderThan)
	f.NoError(err)
	return n
}

func (f *fixture) purge(params outbox.PurgeParams) int {
	f.T.Helper()
	n, err := f.Outbox.Purge(f.Context(), params)
	f.NoError(err)
	return n
}

func TestJoinPurgeDeletesEndedJoinsByAge(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		pending, _ := f.StartWith(c, "pending", 2)
		young, _ := f.StartWith(c, "s", 2)
		old, _ := f.StartWith(c, "s", 2)
		f.EndSteps("s", 1)
		cancelled := f.Start(c, join.StartParams{Open: true})
		f.NoError(c.Cancel(f.Context(), nil, cancelled))
		for _, id := range []join.ID{pending, old, cancelled} {
			f.Backdate(id)
		}
		f.Exec("UPDATE {join} SET {created} = {past} WHERE {join_id} = '%s'", young) // it began long ago and ended now
		f.Zero(f.purgeJoins(c, 2*time.Hour))
		f.Zero(f.purgeJoins(c, 60*24*time.Hour), "an age beyond what an int of milliseconds holds")
		f.Equal(2, f.purgeJoins(c, 30*time.Minute))
		f.Equal(2, f.JoinCount())
		f.Equal(2, f.JoinRow(young).Members)
		for _, table := range []string{"join", "member", "size", "wait"} {
			f.Zero(f.Number("SELECT COUNT(*) FROM {%s} WHERE {join_id} = '%s'", table, old))
		}
		f.Eventually(func() bool { return f.Now().After(f.JoinRow(young).Updated) }, suite.Patience, time.Millisecond)
		f.Equal(1, f.purgeJoins(c, 0))
		f.Zero(f.purgeJoins(c, 0), "a pending join is never deleted")
		f.Stands(c, pending, join.Pending, 0, 0)
		f.Equal(2, f.JoinRow(pending).Members)
		f.Equal(6, f.Count(), "nor is any message")
		f.EndSteps("pending", 0)
		f.Stands(c, pending, join.Completed, 2, 0)
	})
}

// Most rounds of a janitor look only at what has become old since the last one, and not at all that is kept.
func TestTrap_JoinPurgeLooksNoFurtherBackThanItIsTold(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		f.StartWith(c, "s", 1)
		f.EndSteps("s", 0)
		f.Exec("UPDATE {join} SET {created} = {past}, {updated} = {past}")
		purge := func(within time.Duration) (joins int) {
			arg := map[string]int64{"older_than_ms": time.Minute.Milliseconds(), "within_ms": within.Milliseconds(), "limit": 1000}
			f.NoError(seam.Outbox(f.Outbox).Run(f.Context(), f.DB.DB, "outbox_join_purge", arg, func(rows *sql.Rows) error {
				var n, ended int
				err := rows.Scan(&n, &ended)
				joins += ended
				return err
			}))
			return joins
		}
		f.Zero(purge(30 * time.Minute))
		f.Equal(1, f.JoinCount())
		f.Equal(1, purge(2*time.Hour))
		f.Zero(f.JoinCount())
	})
}

func TestJoinPurgeTakesMoreThanABatch(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		large := f.Start(c, join.StartParams{Open: true})
		steps := make([]outbox.MessageID, 2500)
		for i := range steps {
			steps[i] = outbox.MessageID(base.NewOwnerToken())
		}
		f.NoError(c.AttachByReport(f.Context(), nil, large, steps...))
		f.NoError(c.Cancel(f.Context(), nil, large))
		small := f.Start(c, join.StartParams{Open: true})
		f.NoError(c.Seal(f.Context(), nil, small))
		f.Backdate(large)
		f.Backdate(small)
		ctx, cancel := context.WithCancel(f.Context())
		cancel()
		_, err := c.Purge(ctx, 0)
		f.ErrorIs(err, context.Canceled)
		f.Equal(2, f.purgeJoins(c, time.Minute))
		f.Zero(f.JoinCount())
		f.Zero(f.Number("SELECT COUNT(*) FROM {member}"))
	})
}

// Any number of messages may have waited for a join.
func TestJoinPurgeDeletesMoreWaitsThanABatch(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		id := f.Start(c, join.StartParams{Open: true})
		f.NoError(c.Cancel(f.Context(), nil, id))
		f.Backdate(id)
		const waits = 2100
		for from := 0; from < waits; from += 700 {
			rows := make([]string, 700)
			for i := range rows {
				rows[i] = fmt.Sprintf("('%s', '%s')", id, outbox.MessageID(base.NewOwnerToken()))
			}
			f.Exec("INSERT INTO {wait} ({join_id}, {step}) VALUES %s", strings.Join(rows, ", "))
		}
		f.Equal(1, f.purgeJoins(c, time.Minute))
		f.Zero(f.Number("SELECT COUNT(*) FROM {wait}"))
	})
}

// A wait that has not continued yet needs its join, however long nobody has run the handler.
func TestJoinPurgeSparesWhatAMessageStillWaitsFor(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		id, _ := f.StartWith(c, "s", 1)
		parent := f.Start(c, join.StartParams{ExpectedSteps: 1})
		f.NoError(c.AttachJoin(f.Context(), nil, parent, id))
		wait := f.Wait(c, suite.Waits(id, "next", ""))
		f.EndSteps("s", 0)
		f.Backdate(id)
		f.Zero(f.purgeJoins(c, time.Minute))
		f.RunWaits(c)
		f.Continues(wait, "next")
		f.Eventually(func() bool { return f.JoinRow(parent).Status != 0 }, suite.Patience, time.Millisecond)
		f.Equal(1, f.purgeJoins(c, time.Minute))
	})
}

// Purging passes over what an open transaction has locked of a join, and takes the others: the size, by a refused attach, or a
// step that is being counted.
func TestTrap_JoinPurgeWaitsForNoTransaction(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Needs(suite.ConcurrentWriters, suite.SkipLocked, separateProcedures)
		c := f.Joins()
		l := f.Lane("")
		for what, lock := range map[string]func(x outbox.Executor, id join.ID){
			"a refused attach": func(x outbox.Executor, id join.ID) {
				f.ErrorIs(c.AttachByReport(f.Context(), x, id, outbox.MessageID{1}), join.ErrEnded)
			},
			"a step": func(x outbox.Executor, id join.ID) {
				f.Equal(1, f.ExecOn(x, "UPDATE {member} SET {status} = {status} WHERE {join_id} = '%s'", id))
			},
		} {
			locked, _ := f.StartWith(c, "s", 1)
			free, _ := f.StartWith(c, "s", 1)
			for _, id := range []join.ID{locked, free} {
				f.NoError(c.Cancel(f.Context(), nil, id))
				f.Backdate(id)
			}
			tx, err := f.DB.BeginTx(f.Context(), nil)
			f.NoError(err)
			defer func() { _ = tx.Rollback() }() // for a failure before it ends; it frees whoever waits
			lock(tx, locked)
			f.quickly(l, "purging beside "+what, func() error {
				n, err := l.Joins.Purge(f.Context(), time.Minute)
				if err == nil && n != 1 {
					err = fmt.Errorf("%d joins were purged", n)
				}
				return err
			})
			f.NoError(tx.Commit())
			f.Equal(1, f.JoinCount(), what)
			f.Equal(1, f.JoinRow(locked).Members, what)
			f.Equal(1, f.purgeJoins(c, time.Minute), what)
		}
	})
}

// A parent may end, by being cancelled, and be purged while its child goes on.
func TestTrap_AParentThatIsPurgedFirst(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		child, _ := f.StartWith(c, "s", 1)
		parent := f.Start(c, join.StartParams{ExpectedSteps: 1})
		f.NoError(c.AttachJoin(f.Context(), nil, parent, child))
		f.NoError(c.Cancel(f.Context(), nil, parent))
		f.Backdate(parent)
		f.Equal(1, f.purgeJoins(c, time.Minute))
		f.EndSteps("s", 0)
		f.Backdate(child)
		f.Zero(f.purgeJoins(c, time.Minute), "the wait has yet to be handled")
		f.RunWaits(c)
		f.Eventually(func() bool { return f.Number("SELECT COUNT(*) FROM {all} WHERE {status} <> 2") == 0 }, suite.Patience, time.Millisecond)
		f.Equal(1, f.purgeJoins(c, time.Minute))
		f.Zero(f.JoinCount())
	})
}

func TestJoinKeepsTheMessagesOfPendingJoinsFromPurge(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		// More than a batch of them, and older than all others.
		id := f.Start(c, join.StartParams{Open: true})
		f.AddSteps(c, id, "s", 1100)
		shared := f.Start(c, join.StartParams{ExpectedSteps: 1})
		for range 2 {
			claimed := f.ClaimWith(outbox.ClaimParams{Topics: suite.Quotas("s"), Limit: 1000})
			if f.JoinRow(shared).Members == 0 {
				f.NoError(c.Attach(f.Context(), nil, shared, claimed[0].ID)) // a step also of a join that ends
			}
			f.Settle(append(suite.Settled(outbox.Fail, claimed[1]), append(suite.Settled(outbox.Ack, claimed[:1]...), suite.Settled(outbox.Ack, claimed[2:]...)...)...)...)
		}
		f.Exec("UPDATE {outbox} SET {created_at} = {past}")
		f.ExecStates("UPDATE {outbox_state} SET {processed_at} = {past}")
		f.EnqueueN("free", 3)
		free := f.Claim("free")
		f.Settle(append(suite.Settled(outbox.Ack, free[:2]...), suite.Settled(outbox.Fail, free[2])...)...)
		f.Eventually(func() bool { return f.Now().After(f.Row(free[2].ID).Processed) }, suite.Patience, time.Millisecond)
		f.Equal(2, f.purge(outbox.PurgeParams{}))
		f.Equal(1, f.purge(outbox.PurgeParams{Failed: true}))
		f.Equal(1100, f.Count())
		f.Stands(c, shared, join.Completed, 1, 0)

		f.NoError(c.Seal(f.Context(), nil, id))
		f.Equal(1098, f.purge(outbox.PurgeParams{}))
		f.Equal(2, f.purge(outbox.PurgeParams{Failed: true}))
		f.Stands(c, id, join.Failed, 1098, 2)
		f.Equal(1100, f.JoinRow(id).Members, "the join itself is for its own purge")
	})
}

func TestJoinKeepsTheMessagesOfPendingJoinsFromDeleteOnAck(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		deleting := f.NewOutbox(f.DB.DB, func(c *outbox.Config) { c.DeleteOnAck = true })
		id, _ := f.StartWith(c, "s", 2)
		cancelled, late := f.StartWith(c, "late", 1)
		f.NoError(c.Cancel(f.Context(), nil, cancelled))
		free := f.ClaimOne("free")
		steps := f.Claim("s")
		ack := func(claimed ...outbox.Claimed) {
			refused, err := deleting.Settle(f.Context(), f.DB.DB, suite.Settled(outbox.Ack, claimed...))
			f.NoError(err)
			f.Empty(refused)
		}
		ack(free, steps[0])
		f.Empty(f.Rows("{message_id} = '%s'", free.ID), "what is no step is deleted")
		f.Equal(int(outbox.Done), f.Row(steps[0].ID).Status, "a step is kept while its join is pending")
		f.Stands(c, id, join.Pending, 1, 0)
		ack(steps[1])
		f.Stands(c, id, join.Completed, 2, 0)
		ack(f.Claim("late")...)
		f.Equal(join.StepCompleted, f.Step(cancelled, late[0]), "a step that ends after its join has ended, too")

		// The kept rows are for Purge, once the join has ended.
		f.Exec("UPDATE {outbox} SET {created_at} = {past}")
		f.ExecStates("UPDATE {outbox_state} SET {processed_at} = {past}")
		f.purge(outbox.PurgeParams{})
		f.Zero(f.Count())
	})
}
