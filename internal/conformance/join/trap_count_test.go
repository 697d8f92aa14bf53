package join_test

import (
	"context"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/join"
)

// What one settle counts.

func TestTrap_FiftyStepsOfAJoinEndedInOneSettleCountFifty(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		id, _ := f.StartWith(c, "step", 51)
		held := f.Claim("step")
		f.Len(held, 51)
		f.Empty(f.Settle(suite.Settled(outbox.Ack, held[:50]...)...))
		f.Counted(id, join.Pending, 50, 0, 1)
		f.Len(f.Settle(suite.Settled(outbox.Ack, held[:50]...)...), 50, "a second time")
		f.Counted(id, join.Pending, 50, 0, 1)
		f.Empty(f.Settle(suite.Settled(outbox.Ack, held[50])...))
		f.Counted(id, join.Completed, 51, 0, 0)
	})
}

func TestTrap_FiftyJoinsThatShareAMessageCountOneEach(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		ids := f.EnqueueN("step", 2)
		var joins []join.ID
		for range 50 {
			id := f.Start(c, join.StartParams{ExpectedSteps: 2})
			f.NoError(c.Attach(f.Context(), nil, id, ids...))
			joins = append(joins, id)
		}
		held := f.Claim("step")
		f.Empty(f.Settle(suite.Settled(outbox.Ack, held[0])...))
		for _, id := range joins {
			f.Counted(id, join.Pending, 1, 0, 1)
		}
		f.Empty(f.Settle(suite.Settled(outbox.Fail, held[1])...))
		for _, id := range joins {
			f.Counted(id, join.Failed, 1, 1, 0)
		}
	})
}

func TestTrap_ASettleCountsNothingOfAnotherOwner(t *testing.T) {
	for name, options := range map[string]func(*outbox.Config){
		"kept": func(*outbox.Config) {}, "deleted": func(c *outbox.Config) { c.DeleteOnAck = true }} {
		t.Run(name, func(t *testing.T) {
			forEach(t, func(t *testing.T, f *fixture) { f.countsNothingOfAnother(options) })
		})
	}
}

func (f *fixture) countsNothingOfAnother(options func(*outbox.Config)) {
	f.T.Helper()
	c := f.Joins()
	o := f.NewOutbox(f.DB.DB, options)
	mine, _ := f.StartWith(c, "mine", 3)
	theirs, _ := f.StartWith(c, "theirs", 3)
	both := f.Start(c, join.StartParams{ExpectedSteps: 6})
	held, others := f.Claim("mine"), f.Claim("theirs")
	f.NoError(c.Attach(f.Context(), nil, both, append(suite.MessageIDs(held), suite.MessageIDs(others)...)...))

	// A stale worker: it has lost the messages to another, and one of them has ended since.
	f.NoError(o.Ack(f.Context(), others[0].Receipt.Owner, others[0].Receipt.Seq))
	before := f.Rows("{topic} = 'theirs'")
	for _, outcome := range []outbox.Outcome{outbox.Ack, outbox.Fail, outbox.Retry, outbox.Release} {
		var stale []outbox.Settlement
		for _, c := range others {
			stale = append(stale, outbox.Settlement{Receipt: outbox.Receipt{Seq: c.Receipt.Seq, Owner: held[0].Receipt.Owner}, Outcome: outcome})
		}
		refused, err := o.Settle(f.Context(), f.DB.DB, append(stale, suite.Settled(outbox.Ack, held[0])...))
		f.NoError(err)
		f.Subset(refused, suite.Seqs(others), "theirs")
		after := f.Rows("{topic} = 'theirs'")
		for i := range after {
			after[i].IsDue = before[i].IsDue
		}
		f.Equal(before, after)
		f.Counted(mine, join.Pending, 1, 0, 2)
		f.Counted(theirs, join.Pending, 1, 0, 2)
		f.Counted(both, join.Pending, 2, 0, 4)
	}
	refused, err := o.Settle(f.Context(), f.DB.DB, append(suite.Settled(outbox.Ack, held[1:]...), suite.Settled(outbox.Fail, others[1:]...)...))
	f.NoError(err)
	f.Empty(refused)
	f.Counted(mine, join.Completed, 3, 0, 0)
	f.Counted(theirs, join.Failed, 1, 2, 0)
	f.Counted(both, join.Failed, 4, 2, 0)
}

// Five joins of eight messages each, of which every one is in two: in one settle, two of each outcome a join.
func TestTrap_AMixedSettleCountsExactly(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		const joins, steps = 5, 8
		var ids []join.ID
		for range joins {
			ids = append(ids, f.Start(c, join.StartParams{ExpectedSteps: 2 * steps}))
		}
		for i := range ids {
			f.NoError(c.Attach(f.Context(), nil, ids[(i+1)%joins], f.AddSteps(c, ids[i], "step", steps)...))
		}
		held := f.Claim("step")
		f.Len(held, joins*steps)
		var mixed []outbox.Settlement
		for i, c := range held {
			mixed = append(mixed, outbox.Settlement{Receipt: c.Receipt, Outcome: outbox.Outcome(i % 4), Delay: time.Hour})
		}
		f.Empty(f.Settle(mixed...))
		for _, id := range ids {
			f.Counted(id, join.Pending, 4, 4, 8)
		}
		f.Len(f.Settle(mixed...), joins*steps, "a second time, nothing is held")
		for _, id := range ids {
			f.Counted(id, join.Pending, 4, 4, 8)
		}
		f.MakeDue()
		again := f.Claim("step")
		f.Len(again, joins*steps/2)
		f.Empty(f.Settle(suite.Settled(outbox.Ack, again...)...))
		for _, id := range ids {
			f.Counted(id, join.Failed, 12, 4, 0)
		}
	})
}

// Each message counts in the transaction that ends it: also in the handler's own, and in no other way.
func TestTrap_ASettleInTheCallersTransactionCountsWithIt(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		id, _ := f.StartWith(c, "step", 1)
		held := f.Claim("step")
		for _, commit := range []bool{false, true} {
			tx, err := f.DB.BeginTx(f.Context(), nil)
			f.NoError(err)
			refused, err := f.Outbox.Settle(context.WithoutCancel(f.Context()), tx, suite.Settled(outbox.Ack, held...))
			f.NoError(err)
			f.Empty(refused)
			if !commit {
				f.NoError(tx.Rollback())
				f.Counted(id, join.Pending, 0, 0, 1)
				continue
			}
			f.NoError(tx.Commit())
			f.Counted(id, join.Completed, 1, 0, 0)
		}
	})
}
