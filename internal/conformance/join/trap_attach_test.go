package join_test

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/join"
)

// Attaching, while others settle.

// A transaction that has attached steps, started a join and published, and is not committed for long, holds up nobody who
// settles other steps of the same join, nor whoever waits for it.
func TestTrap_ALongTransactionThatAttachesHoldsUpNobody(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Needs(suite.ConcurrentWriters, separateProcedures)
		c := f.Joins()
		id := f.Start(c, join.StartParams{ExpectedSteps: 23})
		f.AddSteps(c, id, "step", 20)
		free := f.EnqueueN("free", 1)
		f.EnqueueN("of no join", 5)
		held := f.Claim("step", "of no join")
		f.Len(held, 25)
		waiter := f.WaitOn(c, nil, id, "next")

		tx, err := f.DB.BeginTx(f.Context(), nil)
		f.NoError(err)
		defer func() { _ = tx.Rollback() }() // for a failure before the commit; it frees whoever waits
		_, err = c.Enqueue(f.Context(), tx, id, outbox.Message{Topic: "late"})
		f.NoError(err)
		f.NoError(c.Attach(f.Context(), tx, id, free...))
		f.NoError(c.AttachByReport(f.Context(), tx, id, outbox.MessageID{1}))
		other, err := c.Start(f.Context(), tx, join.StartParams{ExpectedSteps: 1})
		f.NoError(err)
		_, err = c.Enqueue(f.Context(), tx, other, outbox.Message{Topic: "late"})
		f.NoError(err)
		f.WaitOn(c, tx, other, "other")

		l := f.Lane("")
		f.quickly(l, "a settle", func() error { return l.SettleOn(l.DB, suite.Settled(outbox.Ack, held[:10]...)...) })
		for _, one := range held[10:] {
			f.quickly(l, "a settle of one", func() error { return l.SettleOn(l.DB, suite.Settled(outbox.Fail, one)...) })
		}
		f.quickly(l, "a new wait", func() error {
			_, err := l.Joins.EnqueueWait(f.Context(), nil, join.Wait{Join: id, OnComplete: join.Continuation{Topic: "next"}})
			return err
		})
		f.quickly(l, "cancelling", func() error { return l.Joins.Cancel(f.Context(), nil, id) })
		f.True(f.Row(waiter).IsDue)
		f.NoError(tx.Commit())
		f.Counted(id, join.Cancelled, 10, 10, 3)
		f.Counted(other, join.Pending, 0, 0, 1)
	})
}

// A wait whose join ends while a long transaction makes it a step of another join: nobody waits for that transaction, neither
// who settles the last step, with others in the batch, nor who claims. The wait continues as soon as it can be written to.
func TestTrap_ALongTransactionThatAttachesAWaitHoldsUpNoSettle(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Needs(suite.ConcurrentWriters, suite.SkipLocked, separateProcedures)
		c := f.Joins()
		f.forEachLevel(func(_, ending *suite.Lane) {
			for _, committed := range []bool{true, false} {
				id, last := f.lastStep()
				waiter := f.WaitOn(c, nil, id, "next")
				f.EnqueueN("of no join", 3)
				batch := append(f.Claim("of no join"), last)
				f.Len(batch, 4)
				parent := f.Start(c, join.StartParams{ExpectedSteps: 1})

				tx, err := f.DB.BeginTx(f.Context(), nil)
				f.NoError(err)
				defer func() { _ = tx.Rollback() }() // for a failure before it ends; it frees whoever waits
				f.NoError(c.Attach(f.Context(), tx, parent, waiter))
				f.quickly(ending, "a settle", func() error { return ending.SettleOn(ending.DB, suite.Settled(outbox.Ack, batch...)...) })
				f.Equal(join.Completed, f.Tally(id).Status)
				f.quickly(ending, "a claim", func() error {
					claimed, err := ending.Outbox.Claim(f.Context(), outbox.ClaimParams{Topics: suite.Quotas("of no join", join.DefaultWaitTopic)})
					if err == nil && len(claimed) > 0 {
						err = fmt.Errorf("claimed %v", claimed)
					}
					return err
				})
				status, completed := join.Pending, 0
				if committed {
					f.NoError(tx.Commit())
					status, completed = join.Completed, 1
				} else {
					f.NoError(tx.Rollback())
				}
				f.continuesWith(id, waiter, "next")
				f.Counted(parent, status, completed, 0, 0)
				f.Zero(f.Number("SELECT COUNT(*) FROM %s", f.Part("wake")), "what is noted of waits that are awake")
			}
		})
	})
}

// quickly runs a call that must wait for nobody.
func (f *fixture) quickly(l *suite.Lane, what string, call func() error) {
	f.T.Helper()
	timer := time.NewTimer(20 * time.Second) // some servers are slow, and cannot cancel what waits
	defer timer.Stop()
	select {
	case err := <-l.Run(call):
		f.NoError(err, what)
	case <-timer.C:
		f.FailNow(what + " waits for an open transaction")
	}
}

// Both ways round, a step is counted once: by whoever comes second.
func TestTrap_AttachingAMessageThatEndsMeanwhile(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		f.forEachLevel(func(attaching, ending *suite.Lane) {
			for _, outcome := range []outbox.Outcome{outbox.Ack, outbox.Fail} {
				completed, failed, status := 1, 0, join.Completed
				if outcome == outbox.Fail {
					completed, failed, status = 0, 1, join.Failed
				}
				// The attaching transaction is first: the settle waits for it, and counts.
				id, held := f.Start(c, join.StartParams{ExpectedSteps: 1}), f.ClaimOne("step")
				tx, err := attaching.DB.BeginTx(f.Context(), nil)
				f.NoError(err)
				f.NoError(attaching.Joins.Attach(f.Context(), tx, id, held.ID))
				settling := ending.Settle(suite.Settled(outcome, held)...)
				ending.Blocked(settling)
				f.NoError(tx.Commit())
				ending.Ended(settling)
				f.Counted(id, status, completed, failed, 0)

				// The settle is first: attaching waits for it, and counts.
				id, held = f.Start(c, join.StartParams{ExpectedSteps: 1}), f.ClaimOne("step")
				tx, err = ending.DB.BeginTx(f.Context(), nil)
				f.NoError(err)
				f.NoError(ending.SettleOn(tx, suite.Settled(outcome, held)...))
				attached := attaching.Run(func() error { return attaching.Joins.Attach(f.Context(), nil, id, held.ID) })
				attaching.Blocked(attached)
				f.NoError(tx.Commit())
				attaching.Ended(attached)
				f.Counted(id, status, completed, failed, 0)
				f.NoError(attaching.Joins.Attach(f.Context(), nil, id, held.ID))
				f.Counted(id, status, completed, failed, 0)
			}
		})
	})
}

// The same with acknowledged messages deleted: what is left of them, until it is purged, has ended.
func TestTrap_AttachingAMessageThatIsDeletedMeanwhile(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		f.forEachLevel(func(attaching, ending *suite.Lane) {
			ending.Outbox = f.NewOutbox(ending.DB, func(c *outbox.Config) { c.DeleteOnAck = true })
			id, held := f.Start(c, join.StartParams{ExpectedSteps: 1}), f.ClaimOne("step")
			tx, err := attaching.DB.BeginTx(f.Context(), nil)
			f.NoError(err)
			f.NoError(attaching.Joins.Attach(f.Context(), tx, id, held.ID))
			settling := ending.Settle(suite.Settled(outbox.Ack, held)...)
			ending.Blocked(settling)
			f.NoError(tx.Commit())
			ending.Ended(settling)
			f.Counted(id, join.Completed, 1, 0, 0)

			id, held = f.Start(c, join.StartParams{ExpectedSteps: 1}), f.ClaimOne("step")
			tx, err = ending.DB.BeginTx(f.Context(), nil)
			f.NoError(err)
			f.NoError(ending.SettleOn(tx, suite.Settled(outbox.Ack, held)...))
			attached := attaching.Run(func() error { return attaching.Joins.Attach(f.Context(), nil, id, held.ID) })
			attaching.Blocked(attached)
			f.NoError(tx.Commit())
			attaching.Ended(attached)
			f.Counted(id, join.Completed, 1, 0, 0)
		})
	})
}

// In transactions of callers with snapshots of before, somebody has a conflict, and tries again.
func TestTrap_AttachingInATransactionThatBeganBeforeTheMessageEnded(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Needs(suite.ConcurrentWriters)
		c := f.Joins()
		f.forEachLevel(func(one, two *suite.Lane) {
			for _, attachFirst := range []bool{true, false} {
				id, held := f.Start(c, join.StartParams{ExpectedSteps: 1}), f.ClaimOne("step")
				attach := func(l *suite.Lane) func(context.Context, *sql.Tx) error {
					return func(ctx context.Context, tx *sql.Tx) error { return l.Joins.Attach(ctx, tx, id, held.ID) }
				}
				settle := func(l *suite.Lane) func(context.Context, *sql.Tx) error {
					return func(_ context.Context, tx *sql.Tx) error { return l.SettleOn(tx, suite.Settled(outbox.Ack, held)...) }
				}
				early, late := attach(one), settle(two)
				if !attachFirst {
					early, late = settle(one), attach(two)
				}
				began, other := make(chan struct{}, 100), make(chan struct{})
				result := two.Run(func() error {
					return two.InTx(func(ctx context.Context, tx *sql.Tx) error {
						var n int
						if err := tx.QueryRowContext(ctx, f.SQL("SELECT COUNT(*) FROM {all}")).Scan(&n); err != nil {
							return err
						}
						began <- struct{}{}
						<-other
						return late(ctx, tx)
					})
				})
				suite.Take(f.T, began, "the snapshot")
				f.NoError(one.InTx(early))
				close(other)
				two.Ended(result)
				f.Counted(id, join.Completed, 1, 0, 0)
			}
		})
	})
}

// Not forced, but many: no step is lost, none counted twice.
func TestTrap_AttachingRacesWithSettling(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		rounds := f.Fewer(40)
		c := f.Joins()
		f.forEachLevel(func(attaching, ending *suite.Lane) {
			for range rounds {
				id := f.Start(c, join.StartParams{ExpectedSteps: 4})
				f.EnqueueN("step", 4)
				held := f.Claim("step")
				var group sync.WaitGroup
				var attached, settling error
				group.Go(func() { attached = attaching.Joins.Attach(f.Context(), nil, id, suite.MessageIDs(held)...) })
				group.Go(func() { settling = ending.SettleOn(ending.DB, suite.Settled(outbox.Ack, held...)...) })
				group.Wait()
				f.NoError(attached)
				f.NoError(settling)
				f.Counted(id, join.Completed, 4, 0, 0)
			}
		})
	})
}

// A join that is sealed expects what is attached, and not what comes a moment later.
func TestTrap_SealingAJoinToWhichOthersAttach(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		f.forEachLevel(func(attaching, sealing *suite.Lane) {
			for _, attachFirst := range []bool{true, false} {
				id := f.Start(c, join.StartParams{Open: true})
				f.AddSteps(c, id, "step", 1)
				attach := func(x outbox.Executor) error {
					_, err := attaching.Joins.Enqueue(f.Context(), x, id, outbox.Message{Topic: "step"})
					return err
				}
				if attachFirst {
					tx, err := attaching.DB.BeginTx(f.Context(), nil)
					f.NoError(err)
					f.NoError(attach(tx))
					sealed := sealing.Run(func() error { return sealing.Joins.Seal(f.Context(), nil, id) })
					sealing.Blocked(sealed)
					f.NoError(tx.Commit())
					sealing.Ended(sealed)
				} else {
					tx, err := sealing.DB.BeginTx(f.Context(), nil)
					f.NoError(err)
					f.NoError(sealing.Joins.Seal(f.Context(), tx, id))
					attached := attaching.Run(func() error { return attach(nil) })
					attaching.Blocked(attached)
					f.NoError(tx.Commit())
					err, _ = suite.Take(f.T, attached, "the end of the call")
					f.ErrorIs(err, join.ErrFull)
				}
				held := f.Claim("step")
				f.Equal(len(held), f.Join(c, id).ExpectedSteps)
				f.Empty(f.Settle(suite.Settled(outbox.Ack, held...)...))
				f.Counted(id, join.Completed, len(held), 0, 0)
			}
		})
	})
}
