package conformance

import (
	"context"
	"database/sql"
	"sync"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/join"
)

// Attaching, while others settle.

// A transaction that has attached steps, started a join and published, and is not committed for long, holds up nobody who
// settles other steps of the same join, nor whoever waits for it.
func TestTrap_ALongTransactionThatAttachesHoldsUpNobody(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.needs(concurrentWriters, separateProcedures)
		c := f.joins()
		id := f.start(c, join.StartParams{ExpectedSteps: 23})
		f.addSteps(c, id, "step", 20)
		free := f.enqueueN("free", 1)
		f.enqueueN("of no join", 5)
		held := f.claim("step", "of no join")
		f.Len(held, 25)
		waiter := f.waitOn(c, nil, id, "next")

		tx, err := f.db.BeginTx(f.ctx(), nil)
		f.NoError(err)
		defer func() { _ = tx.Rollback() }() // for a failure before the commit; it frees whoever waits
		_, err = c.Enqueue(f.ctx(), tx, id, outbox.Message{Topic: "late"})
		f.NoError(err)
		f.NoError(c.Attach(f.ctx(), tx, id, free...))
		f.NoError(c.AttachByReport(f.ctx(), tx, id, outbox.MessageID{1}))
		other, err := c.Start(f.ctx(), tx, join.StartParams{ExpectedSteps: 1})
		f.NoError(err)
		_, err = c.Enqueue(f.ctx(), tx, other, outbox.Message{Topic: "late"})
		f.NoError(err)
		f.waitOn(c, tx, other, "other")

		l := f.lane("")
		f.quickly(l, "a settle", func() error { return l.settleOn(l.db, settled(outbox.Ack, held[:10]...)...) })
		for _, one := range held[10:] {
			f.quickly(l, "a settle of one", func() error { return l.settleOn(l.db, settled(outbox.Fail, one)...) })
		}
		f.quickly(l, "a new wait", func() error {
			_, err := l.joins.EnqueueWait(f.ctx(), nil, join.Wait{Join: id, OnComplete: join.Continuation{Topic: "next"}})
			return err
		})
		f.quickly(l, "cancelling", func() error { return l.joins.Cancel(f.ctx(), nil, id) })
		f.True(f.row(waiter).isDue)
		f.NoError(tx.Commit())
		f.Equal(tally{join.Cancelled, 10, 10, 10, 10, 3}, f.tally(id))
		f.counted(other, join.Pending, 0, 0, 1)
	})
}

// quickly runs a call that must wait for nobody.
func (f *fixture) quickly(l *lane, what string, call func() error) {
	f.t.Helper()
	timer := time.NewTimer(20 * time.Second) // some servers are slow, and cannot cancel what waits
	defer timer.Stop()
	select {
	case err := <-l.run(call):
		f.NoError(err, what)
	case <-timer.C:
		f.FailNow(what + " waits for a transaction that attaches")
	}
}

// Both ways round, a step is counted once: by whoever comes second.
func TestTrap_AttachingAMessageThatEndsMeanwhile(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		f.forEachLevel(func(attaching, ending *lane) {
			for _, outcome := range []outbox.Outcome{outbox.Ack, outbox.Fail} {
				completed, failed, status := 1, 0, join.Completed
				if outcome == outbox.Fail {
					completed, failed, status = 0, 1, join.Failed
				}
				// The attaching transaction is first: the settle waits for it, and counts.
				id, held := f.start(c, join.StartParams{ExpectedSteps: 1}), f.claimOne("step")
				tx, err := attaching.db.BeginTx(f.ctx(), nil)
				f.NoError(err)
				f.NoError(attaching.joins.Attach(f.ctx(), tx, id, held.ID))
				settling := ending.settle(settled(outcome, held)...)
				ending.blocked(settling)
				f.NoError(tx.Commit())
				ending.ended(settling)
				f.counted(id, status, completed, failed, 0)

				// The settle is first: attaching waits for it, and counts.
				id, held = f.start(c, join.StartParams{ExpectedSteps: 1}), f.claimOne("step")
				tx, err = ending.db.BeginTx(f.ctx(), nil)
				f.NoError(err)
				f.NoError(ending.settleOn(tx, settled(outcome, held)...))
				attached := attaching.run(func() error { return attaching.joins.Attach(f.ctx(), nil, id, held.ID) })
				attaching.blocked(attached)
				f.NoError(tx.Commit())
				attaching.ended(attached)
				f.counted(id, status, completed, failed, 0)
				f.NoError(attaching.joins.Attach(f.ctx(), nil, id, held.ID))
				f.counted(id, status, completed, failed, 0)
			}
		})
	})
}

// The same with acknowledged messages deleted: what is left of them, until it is purged, has ended.
func TestTrap_AttachingAMessageThatIsDeletedMeanwhile(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		f.forEachLevel(func(attaching, ending *lane) {
			ending.outbox = f.newOutbox(ending.db, func(c *outbox.Config) { c.DeleteOnAck = true })
			id, held := f.start(c, join.StartParams{ExpectedSteps: 1}), f.claimOne("step")
			tx, err := attaching.db.BeginTx(f.ctx(), nil)
			f.NoError(err)
			f.NoError(attaching.joins.Attach(f.ctx(), tx, id, held.ID))
			settling := ending.settle(settled(outbox.Ack, held)...)
			ending.blocked(settling)
			f.NoError(tx.Commit())
			ending.ended(settling)
			f.counted(id, join.Completed, 1, 0, 0)

			id, held = f.start(c, join.StartParams{ExpectedSteps: 1}), f.claimOne("step")
			tx, err = ending.db.BeginTx(f.ctx(), nil)
			f.NoError(err)
			f.NoError(ending.settleOn(tx, settled(outbox.Ack, held)...))
			attached := attaching.run(func() error { return attaching.joins.Attach(f.ctx(), nil, id, held.ID) })
			attaching.blocked(attached)
			f.NoError(tx.Commit())
			attaching.ended(attached)
			f.counted(id, join.Completed, 1, 0, 0)
		})
	})
}

// In transactions of callers with snapshots of before, somebody has a conflict, and tries again.
func TestTrap_AttachingInATransactionThatBeganBeforeTheMessageEnded(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.needs(concurrentWriters)
		c := f.joins()
		f.forEachLevel(func(one, two *lane) {
			for _, attachFirst := range []bool{true, false} {
				id, held := f.start(c, join.StartParams{ExpectedSteps: 1}), f.claimOne("step")
				attach := func(l *lane) func(context.Context, *sql.Tx) error {
					return func(ctx context.Context, tx *sql.Tx) error { return l.joins.Attach(ctx, tx, id, held.ID) }
				}
				settle := func(l *lane) func(context.Context, *sql.Tx) error {
					return func(_ context.Context, tx *sql.Tx) error { return l.settleOn(tx, settled(outbox.Ack, held)...) }
				}
				early, late := attach(one), settle(two)
				if !attachFirst {
					early, late = settle(one), attach(two)
				}
				began, other := make(chan struct{}, 100), make(chan struct{})
				result := two.run(func() error {
					return two.inTx(func(ctx context.Context, tx *sql.Tx) error {
						var n int
						if err := tx.QueryRowContext(ctx, f.sql("SELECT COUNT(*) FROM {all}")).Scan(&n); err != nil {
							return err
						}
						began <- struct{}{}
						<-other
						return late(ctx, tx)
					})
				})
				take(f, began, "the snapshot")
				f.NoError(one.inTx(early))
				close(other)
				two.ended(result)
				f.counted(id, join.Completed, 1, 0, 0)
			}
		})
	})
}

// Not forced, but many: no step is lost, none counted twice.
func TestTrap_AttachingRacesWithSettling(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		rounds := f.fewer(40)
		c := f.joins()
		f.forEachLevel(func(attaching, ending *lane) {
			for range rounds {
				id := f.start(c, join.StartParams{ExpectedSteps: 4})
				f.enqueueN("step", 4)
				held := f.claim("step")
				var group sync.WaitGroup
				var attached, settling error
				group.Go(func() { attached = attaching.joins.Attach(f.ctx(), nil, id, messageIDs(held)...) })
				group.Go(func() { settling = ending.settleOn(ending.db, settled(outbox.Ack, held...)...) })
				group.Wait()
				f.NoError(attached)
				f.NoError(settling)
				f.counted(id, join.Completed, 4, 0, 0)
			}
		})
	})
}

// fewer is how often a test does what it should do n times, on a slow server.
func (f *fixture) fewer(n int) int {
	if f.slow() {
		return max(1, n/10)
	}
	return n
}

// A join that is sealed expects what is attached, and not what comes a moment later.
func TestTrap_SealingAJoinToWhichOthersAttach(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		f.forEachLevel(func(attaching, sealing *lane) {
			for _, attachFirst := range []bool{true, false} {
				id := f.start(c, join.StartParams{Open: true})
				f.addSteps(c, id, "step", 1)
				attach := func(x outbox.Executor) error {
					_, err := attaching.joins.Enqueue(f.ctx(), x, id, outbox.Message{Topic: "step"})
					return err
				}
				if attachFirst {
					tx, err := attaching.db.BeginTx(f.ctx(), nil)
					f.NoError(err)
					f.NoError(attach(tx))
					sealed := sealing.run(func() error { return sealing.joins.Seal(f.ctx(), nil, id) })
					sealing.blocked(sealed)
					f.NoError(tx.Commit())
					sealing.ended(sealed)
				} else {
					tx, err := sealing.db.BeginTx(f.ctx(), nil)
					f.NoError(err)
					f.NoError(sealing.joins.Seal(f.ctx(), tx, id))
					attached := attaching.run(func() error { return attach(nil) })
					attaching.blocked(attached)
					f.NoError(tx.Commit())
					err, _ = take(f, attached, "the end of the call")
					f.ErrorIs(err, join.ErrFull)
				}
				held := f.claim("step")
				f.Equal(len(held), f.join(c, id).ExpectedSteps)
				f.Empty(f.settle(settled(outbox.Ack, held...)...))
				f.counted(id, join.Completed, len(held), 0, 0)
			}
		})
	})
}
