package queue_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/faults"
)

// Each call is stopped before each of its statements in turn, and after each the table is as it was before the call.
func TestOBX091_ACallIsOneTransaction(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		calls := map[string]func(o *outbox.Outbox, db *sql.DB, held []outbox.Claimed) error{
			"enqueue": func(o *outbox.Outbox, db *sql.DB, _ []outbox.Claimed) error {
				_, err := o.Enqueue(f.Context(), db, moreThanABatch("b")...)
				return err
			},
			"claim": func(o *outbox.Outbox, _ *sql.DB, _ []outbox.Claimed) error {
				_, err := o.Claim(f.Context(), outbox.ClaimParams{Topics: suite.Quotas("a", "b")})
				return err
			},
			"settle": func(o *outbox.Outbox, db *sql.DB, held []outbox.Claimed) error {
				_, err := o.Settle(f.Context(), db, append(append(suite.Settled(outbox.Ack, held[0]), suite.Settled(outbox.Retry, held[1])...), suite.Settled(outbox.Fail, held[2])...))
				return err
			},
			"renew": func(o *outbox.Outbox, _ *sql.DB, held []outbox.Claimed) error {
				_, err := o.Renew(f.Context(), time.Hour, held[0].Receipt, held[1].Receipt)
				return err
			},
		}
		f.EnqueueN("a", 6)
		f.ClaimWith(outbox.ClaimParams{Topics: suite.Quotas("a"), Limit: 1}) // for the claim to give back
		f.ExpireLeases()
		held := f.ClaimWith(outbox.ClaimParams{Topics: suite.Quotas("a"), Limit: 3, GiveBack: -1})
		for name, call := range calls {
			before := f.Rows("1 = 1")
			for stop := 1; ; stop++ {
				var n atomic.Int32
				pool := faults.Open(t, f.DB, faults.Hooks{Before: func(_ context.Context, s faults.Statement) error {
					if s.Text != faults.Rollback && int(n.Add(1)) == stop {
						return &faults.Error{Number: 50000, State: "XX000", Result: 10}
					}
					return nil
				}})
				err := call(f.NewOutbox(pool), pool, held)
				if int(n.Load()) < stop {
					f.NoError(err)
					f.Greater(stop, 1, "%s sends at least one statement", name)
					break
				}
				f.Error(err, "%s, stopped before statement %d", name, stop)
				after := f.Rows("1 = 1")
				for i := range after {
					after[i].IsDue = before[i].IsDue
				}
				f.Equal(before, after, "%s, stopped before statement %d, left something", name, stop)
			}
		}
	})
}

func moreThanABatch(topic string) []outbox.Message {
	messages := make([]outbox.Message, 1100)
	for i := range messages {
		messages[i].Topic = topic
	}
	return messages
}

func TestOBX092_ClaimDoesNotSeeWhatIsNotCommitted(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		tx, err := f.DB.BeginTx(f.Context(), nil)
		f.NoError(err)
		_, err = f.Outbox.Enqueue(f.Context(), tx, outbox.Message{Topic: "orders"})
		f.NoError(err)
		// Where there is one writer, the claim waits for the transaction; elsewhere it does not.
		result := make(chan []outbox.Claimed, 1)
		failure := make(chan error, 1)
		started := make(chan struct{})
		var once sync.Once
		pool := faults.Open(t, f.DB, faults.Hooks{Before: func(context.Context, faults.Statement) error {
			once.Do(func() { close(started) })
			return nil
		}})
		o := f.NewOutbox(pool)
		go func() {
			claimed, err := o.Claim(f.Context(), outbox.ClaimParams{Topics: suite.Quotas("orders")})
			result <- claimed
			failure <- err
		}()
		<-started
		f.NoError(tx.Rollback())
		f.Empty(<-result)
		f.NoError(<-failure)
	})
}

func TestOBX093_ADeadlockIsRetriedInOurTransactionAndReturnedInTheCallers(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		const losses = 3
		var left atomic.Int32
		pool := faults.Open(t, f.DB, faults.Hooks{Before: func(_ context.Context, s faults.Statement) error {
			if s.Text == faults.Rollback || s.Text == "ROLLBACK" || left.Add(-1) < 0 {
				return nil
			}
			return faults.Deadlock(f.DB.Name)
		}})
		o := f.NewOutbox(pool)
		lose := func() { left.Store(losses) }

		lose()
		_, err := o.Enqueue(f.Context(), pool, outbox.Message{Topic: "orders"})
		f.NoError(err)
		f.Equal(1, f.Count(), "once, although it was tried again")
		lose()
		claimed, err := o.Claim(f.Context(), outbox.ClaimParams{Topics: suite.Quotas("orders")})
		f.NoError(err)
		f.Len(claimed, 1)
		lose()
		_, err = o.Renew(f.Context(), time.Minute, claimed[0].Receipt)
		f.NoError(err)
		lose()
		refused, err := o.Settle(f.Context(), pool, suite.Settled(outbox.Retry, claimed...))
		f.NoError(err)
		f.Empty(refused)
		f.Equal(1, f.Row(claimed[0].ID).Retries)
		lose()
		_, err = o.ReapExpired(f.Context())
		f.NoError(err)

		// It gives up in the end, and then says what it is.
		left.Store(1 << 30)
		_, err = o.ReapExpired(f.Context())
		f.True(outbox.IsRetryable(err), "%v", err)

		// In the caller's transaction the call is not tried again: the caller has to begin anew.
		left.Store(0)
		tx, err := pool.BeginTx(f.Context(), nil)
		f.NoError(err)
		lose()
		_, err = o.Enqueue(f.Context(), tx, outbox.Message{Topic: "orders"})
		f.True(outbox.IsRetryable(err), "%v", err)
		f.Equal(int32(losses-1), left.Load(), "one try")
		left.Store(0)
		f.NoError(tx.Rollback())
		f.Equal(1, f.Count())

		f.False(outbox.IsRetryable(nil))
		f.False(outbox.IsRetryable(errors.New("deadlock victim"))) // decided by number, never by text
	})
}

func TestOBX093_ALargeEnqueueIsRetriedAsAWhole(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		var n atomic.Int32
		pool := faults.Open(t, f.DB, faults.Hooks{Before: func(_ context.Context, s faults.Statement) error {
			if s.Text != faults.Rollback && s.Text != faults.Begin && n.Add(1) == 2 {
				return faults.Deadlock(f.DB.Name)
			}
			return nil
		}})
		ids, err := f.NewOutbox(pool).Enqueue(f.Context(), pool, moreThanABatch("orders")...)
		f.NoError(err)
		f.Len(ids, 1100)
		f.Equal(1100, f.Count())
	})
}

func TestOBX094_095_ManyWorkersNeverHoldOneMessageTogether(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) { f.manyWorkers() })
}

func (f *fixture) manyWorkers() {
	f.T.Helper()
	const messages, workers = 600, 6
	for i := range 4 {
		f.EnqueueN(fmt.Sprintf("topic %d", i), messages/4)
	}
	var mu sync.Mutex
	holder := map[outbox.WorkItemID]outbox.OwnerToken{}
	claims, acked := 0, 0
	var failures []error
	hold := func(claimed []outbox.Claimed) {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range claimed {
			claims++
			if other, held := holder[c.Receipt.Seq]; held {
				failures = append(failures, fmt.Errorf("%d is held by %v and %v", c.Receipt.Seq, other, c.Receipt.Owner))
			}
			holder[c.Receipt.Seq] = c.Receipt.Owner
		}
	}
	done := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return acked == messages || len(failures) > 0
	}
	work := func(worker int) error {
		o := f.NewOutbox(f.DB.DB)
		for turn := 0; !done(); turn++ {
			claimed, err := o.Claim(f.Context(), outbox.ClaimParams{Limit: 1 + (worker+turn)%17, Topics: suite.Quotas(
				fmt.Sprintf("topic %d", (worker+turn)%4), fmt.Sprintf("topic %d", (worker+turn+1)%4))})
			if err != nil {
				return err
			}
			hold(claimed)
			var settlements []outbox.Settlement
			mu.Lock()
			for i, c := range claimed {
				s := outbox.Settlement{Receipt: c.Receipt, Outcome: outbox.Ack, Delay: -1}
				if (worker+turn+i)%5 == 0 && c.RetryCount < 3 {
					s.Outcome, s.Delay = outbox.Retry, -1
				}
				settlements = append(settlements, s)
				delete(holder, c.Receipt.Seq) // before the call: from its commit on another may have it
			}
			mu.Unlock()
			refused, err := o.Settle(f.Context(), f.DB.DB, settlements)
			if err != nil {
				return err
			}
			if len(refused) > 0 {
				return fmt.Errorf("refused %v", refused)
			}
			mu.Lock()
			for _, s := range settlements {
				if s.Outcome == outbox.Ack {
					acked++
				}
			}
			mu.Unlock()
		}
		return nil
	}
	var group sync.WaitGroup
	for worker := range workers {
		group.Go(func() {
			if err := work(worker); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failures = append(failures, err)
			}
		})
	}
	group.Wait()
	f.Empty(failures)
	f.Equal(messages, acked)
	f.GreaterOrEqual(claims, messages)
	f.Len(f.Rows("{status} = 2"), messages)
}

// A settle that waits for whoever takes the lease back is refused when it goes on.
func TestTrap_ALeaseThatIsTakenWhileItIsSettled(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Needs(suite.ConcurrentWriters)
		l := f.Lane("")
		for _, outcome := range []outbox.Outcome{outbox.Ack, outbox.Retry} {
			f.EnqueueN("orders", 2)
			held := f.Claim("orders")
			tx, err := f.DB.BeginTx(f.Context(), nil)
			f.NoError(err)
			defer func() { _ = tx.Rollback() }() // for a failure before the commit
			f.ExecStatesOn(tx, "UPDATE {outbox_state} SET {status} = 0, {owner_token} = NULL WHERE {seq} = %d", held[1].Receipt.Seq)
			var refused []outbox.WorkItemID
			settling := l.Run(func() (err error) {
				refused, err = l.Outbox.Settle(f.Context(), l.DB, suite.Settled(outcome, held...))
				return err
			})
			l.Blocked(settling)
			f.NoError(tx.Commit())
			l.Ended(settling)
			f.Equal([]outbox.WorkItemID{held[1].Receipt.Seq}, refused)
			f.Equal(int(outbox.Ready), f.Row(held[1].ID).Status)
			f.Clear()
		}
	})
}
