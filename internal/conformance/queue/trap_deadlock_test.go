package queue_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/testdb"
)

// A real deadlock, made by a transaction that locks two messages against the order in which a settle locks them. The
// settle is the victim, is run again when the other has ended, and succeeds.
func TestTrap_ADeadlockIsRetried(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Needs(suite.ConcurrentWriters, suite.SkipLocked)
		f.EnqueueN("orders", 2)
		held := f.Claim("orders")
		for range 3 {
			conn, err := f.DB.Conn(f.Context())
			f.NoError(err)
			// The other never is the victim.
			f.ExecOn(conn, "%s", map[string]string{
				testdb.Postgres: "SET deadlock_timeout = '1h'", testdb.SQLServer: "SET DEADLOCK_PRIORITY HIGH"}[f.DB.Name])
			tx, err := conn.BeginTx(f.Context(), nil)
			f.NoError(err)
			defer func() { _ = tx.Rollback() }() // for a failure before the commit
			f.ExecOn(tx, "UPDATE {outbox_state} SET {flags} = {flags} WHERE {seq} = %d", held[1].Receipt.Seq)

			pool := f.DB.Reopen(t)
			pool.SetMaxOpenConns(1)
			if f.DB.Name == testdb.Postgres {
				// A waiting statement looks for a deadlock once, after this long: by then the circle has to be closed.
				_, err := pool.ExecContext(f.Context(), "SET deadlock_timeout = '2s'")
				f.NoError(err)
			}
			o := f.NewOutbox(pool.DB)
			result := make(chan error, 1)
			go func() {
				refused, err := o.Settle(f.Context(), pool.DB, []outbox.Settlement{
					{Receipt: held[0].Receipt, Outcome: outbox.Retry, Delay: -1},
					{Receipt: held[1].Receipt, Outcome: outbox.Retry, Delay: -1},
				})
				if err == nil && len(refused) > 0 {
					err = outbox.ErrLeaseLost
				}
				result <- err
			}()
			f.waitUntilLocked(held[0].Receipt.Seq)
			f.ExecOn(tx, "UPDATE {outbox_state} SET {flags} = {flags} WHERE {seq} = %d", held[0].Receipt.Seq) // closes the circle
			f.NoError(tx.Commit())
			f.NoError(conn.Close())
			f.NoError(<-result)
			held = f.Claim("orders")
			f.Len(held, 2)
		}
		for _, c := range held {
			f.Equal(3, c.RetryCount, "each settle counted once")
		}
	})
}

// waitUntilLocked waits until somebody has locked a message. There is no signal for that.
func (f *fixture) waitUntilLocked(seq outbox.WorkItemID) {
	f.T.Helper()
	probe := map[string]string{
		testdb.Postgres:  "SELECT {seq} FROM {outbox_state} WHERE {seq} = %d FOR UPDATE NOWAIT",
		testdb.SQLServer: "SET LOCK_TIMEOUT 0; UPDATE {outbox_state} SET {flags} = {flags} WHERE {seq} = %d",
	}[f.DB.Name]
	conn, err := f.DB.Reopen(f.T).Conn(f.Context())
	f.NoError(err)
	defer func() { f.NoError(conn.Close()) }()
	f.Eventually(func() bool {
		_, err := conn.ExecContext(f.Context(), f.SQL(probe, seq))
		return err != nil
	}, suite.Patience, time.Millisecond)
}

// A caller that gets a retryable error runs its transaction again, as the documentation says.
func TestTrap_ACallerRetriesWhatIsRetryable(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Needs(updateConflicts)
		held := f.ClaimOne("orders")
		tries := 0
		for again := true; again; {
			tries++
			tx, err := f.DB.BeginTx(f.Context(), &sql.TxOptions{Isolation: snapshotLevel[f.DB.Name]})
			f.NoError(err)
			var n int
			f.NoError(tx.QueryRowContext(f.Context(), f.SQL("SELECT COUNT(*) FROM {all}")).Scan(&n)) // takes its snapshot
			if tries == 1 {
				f.Exec("UPDATE {outbox_state} SET {flags} = {flags}") // as attaching the message to a join does
			}
			_, err = f.Outbox.Settle(f.Context(), tx, suite.Settled(outbox.Ack, held))
			if again = outbox.IsRetryable(err); again {
				f.NoError(tx.Rollback())
				continue
			}
			f.NoError(err)
			f.NoError(tx.Commit())
		}
		f.Equal(2, tries)
		f.Equal(int(outbox.Done), f.Row(held.ID).Status)
	})
}

// snapshotLevel is the isolation level of a transaction that sees the database as it was when it began.
var snapshotLevel = map[string]sql.IsolationLevel{testdb.Postgres: sql.LevelRepeatableRead, testdb.SQLServer: sql.LevelSnapshot}

// updateConflicts: such a transaction fails, by the documented number, when it changes what another has changed since.
var updateConflicts = suite.NewCapability("conflicts of transactions with snapshots", func(ctx context.Context, db *testdb.DB) (string, error) {
	return suite.WithProbe(ctx, db, func(probe string, one, two *sql.Conn) (string, error) {
		level, ok := snapshotLevel[db.Name]
		if !ok {
			return "there is one writer, and nothing changes while it works", nil
		}
		tx, err := one.BeginTx(ctx, &sql.TxOptions{Isolation: level})
		if err != nil {
			return err.Error(), nil
		}
		defer func() { _ = tx.Rollback() }() // of a probe
		var n int
		if err := tx.QueryRowContext(ctx, "SELECT n FROM "+probe+" WHERE id = 1").Scan(&n); err != nil {
			return err.Error(), nil
		}
		if _, err := two.ExecContext(ctx, "UPDATE "+probe+" SET n = 7 WHERE id = 1"); err != nil {
			return "", err
		}
		_, err = tx.ExecContext(ctx, "UPDATE "+probe+" SET n = 8 WHERE id = 1")
		if !outbox.IsRetryable(err) {
			return fmt.Sprintf("the loser of a conflict gets: %v", err), nil
		}
		return "", nil
	})
})
