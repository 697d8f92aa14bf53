package queue_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/faults"
	"github.com/incursa/watermill-outbox/internal/testdb"
)

// The traps of transactions, connections and isolation levels.

func TestTrap_AStaleWorkersAckCompletesNothing(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.EnqueueN("orders", 50)
		stale := append(f.ClaimWith(outbox.ClaimParams{Topics: suite.Quotas("orders"), Limit: 1, Lease: time.Minute}), f.Claim("orders")...)
		f.ExpireLeases()
		f.Exec("UPDATE {outbox_lease} SET {locked_until} = {future} WHERE {owner_token} IN (SELECT {owner_token} FROM {all} WHERE {seq} = %d)", stale[0].Receipt.Seq) // one of them is still good
		taken := f.Claim("orders")
		f.Len(taken, 49)

		refused := f.Settle(suite.Settled(outbox.Ack, stale...)...)
		f.ElementsMatch(suite.Seqs(stale[1:]), refused)
		f.Len(f.Rows("{status} = 2"), 1)
		f.Len(f.Rows("{status} = 1"), 49)
		for _, late := range []outbox.Outcome{outbox.Retry, outbox.Release, outbox.Fail} {
			f.Len(f.Settle(suite.Settled(late, stale...)...), 50)
		}
		lost, err := f.Outbox.Renew(f.Context(), time.Hour, stale[3].Receipt)
		f.NoError(err)
		f.Len(lost, 1)
		f.Empty(f.Settle(suite.Settled(outbox.Ack, taken...)...), "the new worker is not disturbed")
	})
}

// refuseFailed makes the database refuse to fail a message, so that a settle can be made to go wrong in the middle.
func (f *fixture) refuseFailed() {
	f.T.Helper()
	if f.DB.Name == testdb.SQLite {
		f.Exec(`CREATE TRIGGER refuse_failed BEFORE UPDATE ON outbox_state WHEN NEW.status = 3 BEGIN SELECT RAISE(ABORT, 'refused'); END`)
		return
	}
	f.Exec("ALTER TABLE {outbox_state} ADD CONSTRAINT refuse_failed CHECK ({status} <> 3)")
}

func TestTrap_AFailedSettleDoesNotEndTheCallersTransaction(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Needs(suite.SurvivesThrow)
		f.refuseFailed()
		good, bad := f.ClaimOne("orders"), f.ClaimOne("orders")
		tx, err := f.DB.BeginTx(f.Context(), nil)
		f.NoError(err)
		defer func() { _ = tx.Rollback() }() // for a failure before the commit
		_, err = f.Outbox.Enqueue(f.Context(), tx, outbox.Message{Topic: "the caller's own work"})
		f.NoError(err)
		_, err = f.Outbox.Settle(f.Context(), tx, append(suite.Settled(outbox.Ack, good), suite.Settled(outbox.Fail, bad)...))
		f.Error(err)
		f.False(outbox.IsRetryable(err))
		_, err = f.Outbox.Enqueue(f.Context(), tx, outbox.Message{Topic: "the caller's own work"})
		f.NoError(err, "the transaction goes on")
		f.NoError(tx.Commit())

		f.Len(f.Rows("{topic} = 'the caller''s own work'"), 2)
		f.Equal(int(outbox.InProgress), f.Row(good.ID).Status, "of the failed settle nothing is left")
		f.Equal(int(outbox.InProgress), f.Row(bad.ID).Status)
	})
}

// Where any error ends the transaction, a savepoint of the caller's keeps it; elsewhere it does no harm.
func TestTrap_AFailedSettleInASavepointOfTheCallers(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		save, back := "SAVEPOINT mine", "ROLLBACK TO SAVEPOINT mine"
		if f.DB.Name == testdb.SQLServer {
			f.Needs(suite.SurvivesThrow)
			save, back = "SAVE TRANSACTION mine", "ROLLBACK TRANSACTION mine"
		}
		f.refuseFailed()
		good, bad := f.ClaimOne("orders"), f.ClaimOne("orders")
		f.NoError(outbox.InTx(f.Context(), f.DB.DB, func(ctx context.Context, tx *sql.Tx) error {
			_, err := f.Outbox.Enqueue(ctx, tx, outbox.Message{Topic: "mine"})
			f.NoError(err)
			f.ExecOn(tx, "%s", save)
			_, err = f.Outbox.Settle(ctx, tx, append(suite.Settled(outbox.Ack, good), suite.Settled(outbox.Fail, bad)...))
			f.Error(err)
			f.ExecOn(tx, "%s", back)
			_, err = f.Outbox.Settle(ctx, tx, suite.Settled(outbox.Ack, bad))
			return err
		}))
		f.Len(f.Rows("{topic} = 'mine'"), 1)
		f.Equal(int(outbox.InProgress), f.Row(good.ID).Status)
		f.Equal(int(outbox.Done), f.Row(bad.ID).Status)
	})
}

func TestTrap_SettleInTheCallersTransactionLivesAndDiesWithIt(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		held := f.ClaimOne("orders")
		for _, commit := range []bool{false, true} {
			tx, err := f.DB.BeginTx(f.Context(), nil)
			f.NoError(err)
			refused, err := f.Outbox.Settle(f.Context(), tx, suite.Settled(outbox.Ack, held))
			f.NoError(err)
			f.Empty(refused)
			refused, err = f.Outbox.Settle(f.Context(), tx, suite.Settled(outbox.Ack, held))
			f.NoError(err)
			f.Len(refused, 1, "in the same transaction it is already settled")
			if commit {
				f.NoError(tx.Commit())
				f.Equal(int(outbox.Done), f.Row(held.ID).Status)
			} else {
				f.NoError(tx.Rollback())
				f.Equal(int(outbox.InProgress), f.Row(held.ID).Status)
			}
		}
	})
}

// One connection is enough for every call, and none keeps it.
func TestTrap_APoolOfOneConnection(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		pool := f.DB.Reopen(t)
		pool.SetMaxOpenConns(1)
		one := f.On(pool)
		one.EnqueueN("orders", 1100)
		f.Clear()
		one.Works()
		f.Zero(pool.Stats().InUse)
	})
}

func TestTrap_IsolationLevelsLeftOnTheConnection(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		levels := map[string][]string{
			testdb.SQLite: {"PRAGMA read_uncommitted = 1"},
			testdb.Postgres: {
				"SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ",
				"SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE",
			},
			testdb.SQLServer: {
				"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
				"SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED", "SET TRANSACTION ISOLATION LEVEL SNAPSHOT",
				"SET XACT_ABORT ON", "SET IMPLICIT_TRANSACTIONS OFF",
			},
		}[f.DB.Name]
		for _, level := range levels {
			pool := f.DB.Reopen(t)
			pool.SetMaxOpenConns(1)
			_, err := pool.ExecContext(f.Context(), level)
			f.NoError(err, level)
			one := f.On(pool)
			one.Works()
			f.NoError(pool.Close())
		}
	})
}

// Publishing and settling also work in a caller's transaction of any level.
func TestTrap_IsolationLevelsOfTheCallersTransaction(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable, sql.LevelSnapshot} {
			tx, err := f.DB.BeginTx(f.Context(), &sql.TxOptions{Isolation: level})
			if err != nil {
				continue // a level that this database or its driver does not have
			}
			held := f.claimOutside(tx)
			_, err = f.Outbox.Enqueue(f.Context(), tx, outbox.Message{Topic: "published"})
			f.NoError(err, level)
			refused, err := f.Outbox.Settle(f.Context(), tx, suite.Settled(outbox.Ack, held...))
			f.NoError(err, level)
			f.Empty(refused, level)
			f.NoError(tx.Commit(), level)
		}
		f.NotEmpty(f.Claim("published"))
	})
}

// claimOutside claims a message on another connection, where there can be another writer. tx has not begun to read yet.
func (f *fixture) claimOutside(*sql.Tx) []outbox.Claimed {
	f.T.Helper()
	if f.DB.Name == testdb.SQLite {
		return nil
	}
	return []outbox.Claimed{f.ClaimOne("orders")}
}

// Workers whose connections all carry SERIALIZABLE still claim and settle everything, once.
func TestTrap_WorkersUnderSerializable(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		level := map[string]string{
			testdb.SQLite:    "PRAGMA read_uncommitted = 0",
			testdb.Postgres:  "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE",
			testdb.SQLServer: "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
		}[f.DB.Name]
		const messages, workers = 200, 4
		f.EnqueueN("orders", messages)
		var mu sync.Mutex
		acked := 0
		failures := make([]error, workers)
		var group sync.WaitGroup
		for worker := range workers {
			pool := f.DB.Reopen(t)
			pool.SetMaxOpenConns(1)
			_, err := pool.ExecContext(f.Context(), level)
			f.NoError(err)
			o := f.NewOutbox(pool.DB)
			group.Go(func() {
				failures[worker] = func() error {
					for {
						mu.Lock()
						done := acked == messages
						mu.Unlock()
						if done {
							return nil
						}
						claimed, err := o.Claim(f.Context(), outbox.ClaimParams{Topics: suite.Quotas("orders"), Limit: 7})
						if err != nil {
							return err
						}
						refused, err := o.Settle(f.Context(), pool.DB, suite.Settled(outbox.Ack, claimed...))
						if err != nil || len(refused) > 0 {
							return errors.Join(err, map[bool]error{true: errors.New("refused")}[len(refused) > 0])
						}
						mu.Lock()
						acked += len(claimed)
						mu.Unlock()
					}
				}()
			})
		}
		group.Wait()
		for _, err := range failures {
			f.NoError(err)
		}
		f.Len(f.Rows("{status} = 2"), messages)
	})
}

// A call that is cancelled while it waits for a lock returns, changes nothing, and leaves the pool usable.
func TestTrap_AContextThatIsCancelledInAStatement(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Needs(suite.CancelsWaiting)
		held := f.ClaimOne("orders")
		tx, err := f.DB.BeginTx(f.Context(), nil)
		f.NoError(err)
		f.ExecOn(tx, "UPDATE {outbox_state} SET {flags} = {flags} WHERE {seq} = %d", held.Receipt.Seq)

		sent := make(chan struct{}, 100)
		pool := faults.Open(t, f.DB, faults.Hooks{Before: func(context.Context, faults.Statement) error {
			sent <- struct{}{}
			return nil
		}})
		pool.SetMaxOpenConns(1)
		o := f.NewOutbox(pool)
		ctx, cancel := context.WithCancel(f.Context())
		result := make(chan error, 1)
		go func() {
			_, err := o.Settle(ctx, pool, suite.Settled(outbox.Ack, held))
			result <- err
		}()
		<-sent
		cancel()
		err = <-result
		f.Error(err)
		f.NoError(tx.Rollback())
		if !errors.Is(err, outbox.ErrUnknownOutcome) { // else the server has it still, and may do it now
			f.Equal(int(outbox.InProgress), f.Row(held.ID).Status)
		}
		_, err = o.Settle(f.Context(), pool, suite.Settled(outbox.Ack, held))
		f.NoError(err, "the one connection of the pool is not lost")
		f.Equal(int(outbox.Done), f.Row(held.ID).Status)
		f.Zero(pool.Stats().InUse)
	})
}

func TestTrap_AContextThatHasEnded(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		held := f.ClaimOne("orders")
		ctx, cancel := context.WithCancel(f.Context())
		cancel()
		_, err := f.Outbox.Enqueue(ctx, f.DB.DB, outbox.Message{Topic: "orders"})
		f.ErrorIs(err, context.Canceled)
		_, err = f.Outbox.Claim(ctx, outbox.ClaimParams{Topics: suite.Quotas("orders")})
		f.ErrorIs(err, context.Canceled)
		_, err = f.Outbox.Settle(ctx, f.DB.DB, suite.Settled(outbox.Ack, held))
		f.ErrorIs(err, context.Canceled)
		f.Equal(1, f.Count())
		f.Zero(f.DB.Stats().InUse)
	})
}

// A rollback must reach the database although the call's context has ended: else the connection goes back to the pool
// inside a transaction.
func TestTrap_AContextThatEndsBetweenStatements(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		held := f.ClaimOne("orders")
		for stop := 1; stop < 10; stop++ {
			ctx, cancel := context.WithCancel(f.Context())
			n := 0
			pool := faults.Open(t, f.DB, faults.Hooks{After: func(context.Context, faults.Statement, error) {
				if n++; n == stop {
					cancel()
				}
			}})
			pool.SetMaxOpenConns(1)
			o := f.NewOutbox(pool)
			_, err := o.Settle(ctx, pool, suite.Settled(outbox.Retry, held))
			cancel()
			if err == nil {
				break
			}
			// The one connection is inside no transaction: what it does now is there for others.
			_, err = o.Enqueue(f.Context(), pool, outbox.Message{Topic: "after"})
			f.NoError(err, "stopped after statement %d", stop)
			f.Len(f.Rows("{topic} = 'after'"), stop)
		}
	})
}
