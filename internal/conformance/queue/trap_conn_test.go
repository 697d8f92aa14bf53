package queue_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/faults"
	"github.com/incursa/watermill-outbox/internal/testdb"
)

// oneLock: all writers wait for each other.
var oneLock = suite.NewCapability("one lock for the whole database", func(_ context.Context, db *testdb.DB) (string, error) {
	if db.Name != testdb.SQLite {
		return "it locks rows", nil
	}
	return "", nil
})

// On a *sql.Conn without a transaction, what reads before it writes failed at once beside another writer, whatever the timeout: an
// outermost savepoint takes no more than a reader's lock.
func TestTrap_AConnectionWaitsForTheOtherWriter(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Needs(oneLock)
		held := f.ClaimOne("orders")
		conn, err := f.DB.Conn(f.Context())
		f.NoError(err)
		defer func() { f.NoError(conn.Close()) }()
		f.ExecOn(conn, "PRAGMA busy_timeout = 300")

		other, err := f.DB.BeginTx(f.Context(), nil)
		f.NoError(err)
		defer func() { _ = other.Rollback() }() // for a failure before the end
		f.ExecOn(other, "UPDATE {outbox_state} SET {flags} = {flags}")
		began := time.Now()
		_, err = f.Outbox.Settle(f.Context(), conn, suite.Settled(outbox.Ack, held))
		f.True(outbox.IsRetryable(err), err)
		f.NotErrorIs(err, outbox.ErrUnknownOutcome)
		f.GreaterOrEqual(time.Since(began), 250*time.Millisecond)
		f.NoError(other.Commit())

		f.settlesAlone(conn, held)
	})
}

// settlesAlone settles in a transaction of the caller's, which is the caller's to end, and then without one.
func (f *fixture) settlesAlone(conn *sql.Conn, held outbox.Claimed) {
	f.T.Helper()
	f.ExecOn(conn, "BEGIN")
	refused, err := f.Outbox.Settle(f.Context(), conn, suite.Settled(outbox.Ack, held))
	f.NoError(err)
	f.Empty(refused)
	f.ExecOn(conn, "ROLLBACK")
	f.Equal(int(outbox.InProgress), f.Row(held.ID).Status)

	refused, err = f.Outbox.Settle(f.Context(), conn, suite.Settled(outbox.Ack, held))
	f.NoError(err)
	f.Empty(refused)
	f.Equal(int(outbox.Done), f.Row(held.ID).Status)
}

// A call whose context has ended leaves a connection as it is. If it ends while the call begins its transaction, the driver reports no
// more than that; should the transaction have begun, all other writers would wait behind it.
func TestTrap_AConnectionWhoseCallIsCutOff(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Needs(oneLock)
		held := f.ClaimOne("orders")
		ctx, cancel := context.WithCancel(f.Context())
		pool := faults.Open(t, f.DB, faults.Hooks{Answer: func(asked context.Context, s faults.Statement) error {
			if s.Text == "BEGIN IMMEDIATE" {
				cancel()
			}
			return asked.Err()
		}})
		o := f.NewOutbox(pool)
		for range 2 {
			conn, err := pool.Conn(f.Context())
			f.NoError(err)
			_, err = o.Settle(ctx, conn, suite.Settled(outbox.Ack, held))
			f.ErrorIs(err, context.Canceled)
			f.NotErrorIs(err, outbox.ErrUnknownOutcome)
			f.EnqueueN("orders", 1) // beside this connection
			_ = conn.Close()        // the first is closed
		}
		f.Equal(int(outbox.InProgress), f.Row(held.ID).Status)

		conn, err := pool.Conn(f.Context())
		f.NoError(err)
		defer func() { f.NoError(conn.Close()) }()
		f.ExecOn(conn, "BEGIN")
		_, err = o.Settle(ctx, conn, suite.Settled(outbox.Ack, held))
		f.ErrorIs(err, context.Canceled)
		f.ExecOn(conn, "COMMIT")
	})
}

// A call whose context ends gives a *sql.Conn up. A *sql.Tx that the caller has begun on it ends only after the call, which does not
// wait for it.
func TestTrap_AContextThatEndsOnAConnectionWithATransaction(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		conn, err := f.DB.Conn(f.Context())
		f.NoError(err)
		tx, err := conn.BeginTx(f.Context(), nil)
		f.NoError(err)
		ended, end := context.WithCancel(f.Context())
		end()
		_, err = f.Outbox.Enqueue(ended, conn, outbox.Message{Topic: "orders"})
		f.ErrorIs(err, context.Canceled)
		f.NoError(tx.Rollback())
		f.Zero(f.Count())
		_ = conn.Close() // it may have been given up
	})
}
