package conformance

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/faults"
	"github.com/incursa/watermill-outbox/internal/testdb"
)

// The traps of transactions, connections and isolation levels.

func TestTrap_AStaleWorkersAckCompletesNothing(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.enqueueN("orders", 50)
		stale := append(f.claimWith(outbox.ClaimParams{Topics: quotas("orders"), Limit: 1, Lease: time.Minute}), f.claim("orders")...)
		f.expireLeases()
		f.exec("UPDATE {outbox_lease} SET {locked_until} = {future} WHERE {owner_token} IN (SELECT {owner_token} FROM {all} WHERE {seq} = %d)", stale[0].Receipt.Seq) // one of them is still good
		taken := f.claim("orders")
		f.Len(taken, 49)

		refused := f.settle(settled(outbox.Ack, stale...)...)
		f.ElementsMatch(seqs(stale[1:]), refused)
		f.Len(f.rows("{status} = 2"), 1)
		f.Len(f.rows("{status} = 1"), 49)
		for _, late := range []outbox.Outcome{outbox.Retry, outbox.Release, outbox.Fail} {
			f.Len(f.settle(settled(late, stale...)...), 50)
		}
		lost, err := f.outbox.Renew(f.ctx(), time.Hour, stale[3].Receipt)
		f.NoError(err)
		f.Len(lost, 1)
		f.Empty(f.settle(settled(outbox.Ack, taken...)...), "the new worker is not disturbed")
	})
}

// refuseFailed makes the database refuse to fail a message, so that a settle can be made to go wrong in the middle.
func (f *fixture) refuseFailed() {
	f.t.Helper()
	if f.db.Name == testdb.SQLite {
		f.exec(`CREATE TRIGGER refuse_failed BEFORE UPDATE ON outbox_state WHEN NEW.status = 3 BEGIN SELECT RAISE(ABORT, 'refused'); END`)
		return
	}
	f.exec("ALTER TABLE {outbox_state} ADD CONSTRAINT refuse_failed CHECK ({status} <> 3)")
}

func TestTrap_AFailedSettleDoesNotEndTheCallersTransaction(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.needs(survivesThrow)
		f.refuseFailed()
		good, bad := f.claimOne("orders"), f.claimOne("orders")
		tx, err := f.db.BeginTx(f.ctx(), nil)
		f.NoError(err)
		defer func() { _ = tx.Rollback() }() // for a failure before the commit
		_, err = f.outbox.Enqueue(f.ctx(), tx, outbox.Message{Topic: "the caller's own work"})
		f.NoError(err)
		_, err = f.outbox.Settle(f.ctx(), tx, append(settled(outbox.Ack, good), settled(outbox.Fail, bad)...))
		f.Error(err)
		f.False(outbox.IsRetryable(err))
		_, err = f.outbox.Enqueue(f.ctx(), tx, outbox.Message{Topic: "the caller's own work"})
		f.NoError(err, "the transaction goes on")
		f.NoError(tx.Commit())

		f.Len(f.rows("{topic} = 'the caller''s own work'"), 2)
		f.Equal(int(outbox.InProgress), f.row(good.ID).status, "of the failed settle nothing is left")
		f.Equal(int(outbox.InProgress), f.row(bad.ID).status)
	})
}

// Where any error ends the transaction, a savepoint of the caller's keeps it; elsewhere it does no harm.
func TestTrap_AFailedSettleInASavepointOfTheCallers(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		save, back := "SAVEPOINT mine", "ROLLBACK TO SAVEPOINT mine"
		if f.db.Name == testdb.SQLServer {
			f.needs(survivesThrow)
			save, back = "SAVE TRANSACTION mine", "ROLLBACK TRANSACTION mine"
		}
		f.refuseFailed()
		good, bad := f.claimOne("orders"), f.claimOne("orders")
		f.NoError(outbox.InTx(f.ctx(), f.db.DB, func(ctx context.Context, tx *sql.Tx) error {
			_, err := f.outbox.Enqueue(ctx, tx, outbox.Message{Topic: "mine"})
			f.NoError(err)
			f.execOn(tx, "%s", save)
			_, err = f.outbox.Settle(ctx, tx, append(settled(outbox.Ack, good), settled(outbox.Fail, bad)...))
			f.Error(err)
			f.execOn(tx, "%s", back)
			_, err = f.outbox.Settle(ctx, tx, settled(outbox.Ack, bad))
			return err
		}))
		f.Len(f.rows("{topic} = 'mine'"), 1)
		f.Equal(int(outbox.InProgress), f.row(good.ID).status)
		f.Equal(int(outbox.Done), f.row(bad.ID).status)
	})
}

func TestTrap_SettleInTheCallersTransactionLivesAndDiesWithIt(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		held := f.claimOne("orders")
		for _, commit := range []bool{false, true} {
			tx, err := f.db.BeginTx(f.ctx(), nil)
			f.NoError(err)
			refused, err := f.outbox.Settle(f.ctx(), tx, settled(outbox.Ack, held))
			f.NoError(err)
			f.Empty(refused)
			refused, err = f.outbox.Settle(f.ctx(), tx, settled(outbox.Ack, held))
			f.NoError(err)
			f.Len(refused, 1, "in the same transaction it is already settled")
			if commit {
				f.NoError(tx.Commit())
				f.Equal(int(outbox.Done), f.row(held.ID).status)
			} else {
				f.NoError(tx.Rollback())
				f.Equal(int(outbox.InProgress), f.row(held.ID).status)
			}
		}
	})
}

// One connection is enough for every call, and none keeps it.
func TestTrap_APoolOfOneConnection(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		pool := f.db.Reopen(t)
		pool.SetMaxOpenConns(1)
		one := &fixture{Assertions: f.Assertions, t: t, db: pool, config: f.config, outbox: f.newOutbox(pool.DB)}
		one.enqueueN("orders", 1100)
		f.clear()
		one.works()
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
		}[f.db.Name]
		for _, level := range levels {
			pool := f.db.Reopen(t)
			pool.SetMaxOpenConns(1)
			_, err := pool.ExecContext(f.ctx(), level)
			f.NoError(err, level)
			one := &fixture{Assertions: f.Assertions, t: t, db: pool, config: f.config, outbox: f.newOutbox(pool.DB)}
			one.works()
			f.NoError(pool.Close())
		}
	})
}

// Publishing and settling also work in a caller's transaction of any level.
func TestTrap_IsolationLevelsOfTheCallersTransaction(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable, sql.LevelSnapshot} {
			tx, err := f.db.BeginTx(f.ctx(), &sql.TxOptions{Isolation: level})
			if err != nil {
				continue // a level that this database or its driver does not have
			}
			held := f.claimOutside(tx)
			_, err = f.outbox.Enqueue(f.ctx(), tx, outbox.Message{Topic: "published"})
			f.NoError(err, level)
			refused, err := f.outbox.Settle(f.ctx(), tx, settled(outbox.Ack, held...))
			f.NoError(err, level)
			f.Empty(refused, level)
			f.NoError(tx.Commit(), level)
		}
		f.NotEmpty(f.claim("published"))
	})
}

// claimOutside claims a message on another connection, where there can be another writer. tx has not begun to read yet.
func (f *fixture) claimOutside(*sql.Tx) []outbox.Claimed {
	f.t.Helper()
	if f.db.Name == testdb.SQLite {
		return nil
	}
	return []outbox.Claimed{f.claimOne("orders")}
}

// Workers whose connections all carry SERIALIZABLE still claim and settle everything, once.
func TestTrap_WorkersUnderSerializable(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		level := map[string]string{
			testdb.SQLite:    "PRAGMA read_uncommitted = 0",
			testdb.Postgres:  "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE",
			testdb.SQLServer: "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
		}[f.db.Name]
		const messages, workers = 200, 4
		f.enqueueN("orders", messages)
		var mu sync.Mutex
		acked := 0
		failures := make([]error, workers)
		var group sync.WaitGroup
		for worker := range workers {
			pool := f.db.Reopen(t)
			pool.SetMaxOpenConns(1)
			_, err := pool.ExecContext(f.ctx(), level)
			f.NoError(err)
			o := f.newOutbox(pool.DB)
			group.Go(func() {
				failures[worker] = func() error {
					for {
						mu.Lock()
						done := acked == messages
						mu.Unlock()
						if done {
							return nil
						}
						claimed, err := o.Claim(f.ctx(), outbox.ClaimParams{Topics: quotas("orders"), Limit: 7})
						if err != nil {
							return err
						}
						refused, err := o.Settle(f.ctx(), pool.DB, settled(outbox.Ack, claimed...))
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
		f.Len(f.rows("{status} = 2"), messages)
	})
}

// A call that is cancelled while it waits for a lock returns, changes nothing, and leaves the pool usable.
func TestTrap_AContextThatIsCancelledInAStatement(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.needs(cancelsWaiting)
		held := f.claimOne("orders")
		tx, err := f.db.BeginTx(f.ctx(), nil)
		f.NoError(err)
		f.execOn(tx, "UPDATE {outbox_state} SET {flags} = {flags} WHERE {seq} = %d", held.Receipt.Seq)

		sent := make(chan struct{}, 100)
		pool := faults.Open(t, f.db, faults.Hooks{Before: func(context.Context, faults.Statement) error {
			sent <- struct{}{}
			return nil
		}})
		pool.SetMaxOpenConns(1)
		o := f.newOutbox(pool)
		ctx, cancel := context.WithCancel(f.ctx())
		result := make(chan error, 1)
		go func() {
			_, err := o.Settle(ctx, pool, settled(outbox.Ack, held))
			result <- err
		}()
		<-sent
		cancel()
		err = <-result
		f.Error(err)
		f.NoError(tx.Rollback())
		if !errors.Is(err, outbox.ErrUnknownOutcome) { // else the server has it still, and may do it now
			f.Equal(int(outbox.InProgress), f.row(held.ID).status)
		}
		_, err = o.Settle(f.ctx(), pool, settled(outbox.Ack, held))
		f.NoError(err, "the one connection of the pool is not lost")
		f.Equal(int(outbox.Done), f.row(held.ID).status)
		f.Zero(pool.Stats().InUse)
	})
}

func TestTrap_AContextThatHasEnded(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		held := f.claimOne("orders")
		ctx, cancel := context.WithCancel(f.ctx())
		cancel()
		_, err := f.outbox.Enqueue(ctx, f.db.DB, outbox.Message{Topic: "orders"})
		f.ErrorIs(err, context.Canceled)
		_, err = f.outbox.Claim(ctx, outbox.ClaimParams{Topics: quotas("orders")})
		f.ErrorIs(err, context.Canceled)
		_, err = f.outbox.Settle(ctx, f.db.DB, settled(outbox.Ack, held))
		f.ErrorIs(err, context.Canceled)
		f.Equal(1, f.count())
		f.Zero(f.db.Stats().InUse)
	})
}

// A rollback must reach the database although the call's context has ended: else the connection goes back to the pool
// inside a transaction.
func TestTrap_AContextThatEndsBetweenStatements(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		held := f.claimOne("orders")
		for stop := 1; stop < 10; stop++ {
			ctx, cancel := context.WithCancel(f.ctx())
			n := 0
			pool := faults.Open(t, f.db, faults.Hooks{After: func(context.Context, faults.Statement, error) {
				if n++; n == stop {
					cancel()
				}
			}})
			pool.SetMaxOpenConns(1)
			o := f.newOutbox(pool)
			_, err := o.Settle(ctx, pool, settled(outbox.Retry, held))
			cancel()
			if err == nil {
				break
			}
			// The one connection is inside no transaction: what it does now is there for others.
			_, err = o.Enqueue(f.ctx(), pool, outbox.Message{Topic: "after"})
			f.NoError(err, "stopped after statement %d", stop)
			f.Len(f.rows("{topic} = 'after'"), stop)
		}
	})
}
