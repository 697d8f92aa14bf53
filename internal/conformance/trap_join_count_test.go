package conformance

import (
	"context"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/join"
)

// What one settle counts.

func TestTrap_FiftyStepsOfAJoinEndedInOneSettleCountFifty(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		id, _ := f.startWith(c, "step", 51)
		held := f.claim("step")
		f.Len(held, 51)
		f.Empty(f.settle(settled(outbox.Ack, held[:50]...)...))
		f.counted(id, join.Pending, 50, 0, 1)
		f.Len(f.settle(settled(outbox.Ack, held[:50]...)...), 50, "a second time")
		f.counted(id, join.Pending, 50, 0, 1)
		f.Empty(f.settle(settled(outbox.Ack, held[50])...))
		f.counted(id, join.Completed, 51, 0, 0)
	})
}

func TestTrap_FiftyJoinsThatShareAMessageCountOneEach(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		ids := f.enqueueN("step", 2)
		var joins []join.ID
		for range 50 {
			id := f.start(c, join.StartParams{ExpectedSteps: 2})
			f.NoError(c.Attach(f.ctx(), nil, id, ids...))
			joins = append(joins, id)
		}
		held := f.claim("step")
		f.Empty(f.settle(settled(outbox.Ack, held[0])...))
		for _, id := range joins {
			f.counted(id, join.Pending, 1, 0, 1)
		}
		f.Empty(f.settle(settled(outbox.Fail, held[1])...))
		for _, id := range joins {
			f.counted(id, join.Failed, 1, 1, 0)
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
	f.t.Helper()
	c := f.joins()
	o := f.newOutbox(f.db.DB, options)
	mine, _ := f.startWith(c, "mine", 3)
	theirs, _ := f.startWith(c, "theirs", 3)
	both := f.start(c, join.StartParams{ExpectedSteps: 6})
	held, others := f.claim("mine"), f.claim("theirs")
	f.NoError(c.Attach(f.ctx(), nil, both, append(messageIDs(held), messageIDs(others)...)...))

	// A stale worker: it has lost the messages to another, and one of them has ended since.
	f.NoError(o.Ack(f.ctx(), others[0].Receipt.Owner, others[0].Receipt.Seq))
	before := f.rows("{topic} = 'theirs'")
	for _, outcome := range []outbox.Outcome{outbox.Ack, outbox.Fail, outbox.Retry, outbox.Release} {
		var stale []outbox.Settlement
		for _, c := range others {
			stale = append(stale, outbox.Settlement{Receipt: outbox.Receipt{Seq: c.Receipt.Seq, Owner: held[0].Receipt.Owner}, Outcome: outcome})
		}
		refused, err := o.Settle(f.ctx(), f.db.DB, append(stale, settled(outbox.Ack, held[0])...))
		f.NoError(err)
		f.Subset(refused, seqs(others), "theirs")
		after := f.rows("{topic} = 'theirs'")
		for i := range after {
			after[i].isDue = before[i].isDue
		}
		f.Equal(before, after)
		f.counted(mine, join.Pending, 1, 0, 2)
		f.counted(theirs, join.Pending, 1, 0, 2)
		f.counted(both, join.Pending, 2, 0, 4)
	}
	refused, err := o.Settle(f.ctx(), f.db.DB, append(settled(outbox.Ack, held[1:]...), settled(outbox.Fail, others[1:]...)...))
	f.NoError(err)
	f.Empty(refused)
	f.counted(mine, join.Completed, 3, 0, 0)
	f.counted(theirs, join.Failed, 1, 2, 0)
	f.counted(both, join.Failed, 4, 2, 0)
}

// Five joins of eight messages each, of which every one is in two: in one settle, two of each outcome a join.
func TestTrap_AMixedSettleCountsExactly(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		const joins, steps = 5, 8
		var ids []join.ID
		for range joins {
			ids = append(ids, f.start(c, join.StartParams{ExpectedSteps: 2 * steps}))
		}
		for i := range ids {
			f.NoError(c.Attach(f.ctx(), nil, ids[(i+1)%joins], f.addSteps(c, ids[i], "step", steps)...))
		}
		held := f.claim("step")
		f.Len(held, joins*steps)
		var mixed []outbox.Settlement
		for i, c := range held {
			mixed = append(mixed, outbox.Settlement{Receipt: c.Receipt, Outcome: outbox.Outcome(i % 4), Delay: time.Hour})
		}
		f.Empty(f.settle(mixed...))
		for _, id := range ids {
			f.counted(id, join.Pending, 4, 4, 8)
		}
		f.Len(f.settle(mixed...), joins*steps, "a second time, nothing is held")
		for _, id := range ids {
			f.counted(id, join.Pending, 4, 4, 8)
		}
		f.makeDue()
		again := f.claim("step")
		f.Len(again, joins*steps/2)
		f.Empty(f.settle(settled(outbox.Ack, again...)...))
		for _, id := range ids {
			f.counted(id, join.Failed, 12, 4, 0)
		}
	})
}

// Each message counts in the transaction that ends it: also in the handler's own, and in no other way.
func TestTrap_ASettleInTheCallersTransactionCountsWithIt(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		id, _ := f.startWith(c, "step", 1)
		held := f.claim("step")
		for _, commit := range []bool{false, true} {
			tx, err := f.db.BeginTx(f.ctx(), nil)
			f.NoError(err)
			refused, err := f.outbox.Settle(context.WithoutCancel(f.ctx()), tx, settled(outbox.Ack, held...))
			f.NoError(err)
			f.Empty(refused)
			if !commit {
				f.NoError(tx.Rollback())
				f.counted(id, join.Pending, 0, 0, 1)
				continue
			}
			f.NoError(tx.Commit())
			f.counted(id, join.Completed, 1, 0, 0)
		}
	})
}
