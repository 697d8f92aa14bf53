package queue_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/faults"
	"github.com/incursa/watermill-outbox/internal/seam"
	"github.com/incursa/watermill-outbox/internal/testdb"
)

// toStandby returns a pool of at most so many connections, and what makes its only one like one that leads to a standby.
func (f *fixture) toStandby(most int) (pool *testdb.DB, connected func()) {
	f.T.Helper()
	pool = f.DB.Reopen(f.T)
	pool.SetMaxOpenConns(most)
	return pool, func() {
		f.T.Helper()
		_, err := pool.ExecContext(f.Context(), "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY")
		f.NoError(err)
	}
}

// A pool that was connected to a standby, as after a failover with an old DNS entry, gives such connections up when it is refused
// a write, and goes on with others. The outcome is known.
func TestTrap_ConnectionsToAStandby(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		if f.DB.Name != testdb.Postgres {
			return // only there a session can be made as a standby's are
		}
		pool, connected := f.toStandby(1)
		o := f.NewOutbox(pool.DB)
		connected()
		_, err := o.Enqueue(f.Context(), pool.DB, outbox.Message{Topic: "orders"})
		f.NoError(err)
		connected()
		claimed, err := o.Claim(f.Context(), outbox.ClaimParams{Topics: suite.Quotas("orders")})
		f.NoError(err)
		f.Len(claimed, 1)
		connected()
		f.NoError(o.Ack(f.Context(), claimed[0].Receipt.Owner, claimed[0].Receipt.Seq))
	})
}

// InTx does not run its function again, which may have done more than write to the database. It gives the connection up, so
// that the next call has another. A transaction that the library makes for itself is run again at once.
func TestTrap_ATransactionOnAConnectionToAStandby(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		if f.DB.Name != testdb.Postgres {
			return
		}
		for _, most := range []int{1, 2} {
			pool, connected := f.toStandby(most)
			o := f.NewOutbox(pool.DB)
			calls := 0
			enqueue := func(ctx context.Context, tx *sql.Tx) error {
				calls++
				_, err := o.Enqueue(ctx, tx, outbox.Message{Topic: "orders"})
				return err
			}
			connected()
			err := outbox.InTx(f.Context(), pool.DB, enqueue)
			f.ErrorContains(err, "25006")
			f.NotErrorIs(err, outbox.ErrUnknownOutcome)
			f.Equal(1, calls)
			f.NoError(outbox.InTx(f.Context(), pool.DB, enqueue))

			connected()
			f.NoError(seam.Outbox(o).InTx(f.Context(), pool.DB, func(ctx context.Context, x outbox.Executor) error {
				_, err := o.Enqueue(ctx, x, outbox.Message{Topic: "orders"})
				return err
			}))
			f.Len(f.Rows("{topic} = 'orders'"), 2*most)
		}
	})
}

// A function that ends the transaction itself is told so by InTx. Until then it can use the pool, be it of one connection.
func TestTrap_WhoEndsTheTransactionOfInTxCanUseThePool(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		pool := f.DB.Reopen(t)
		pool.SetMaxOpenConns(1)
		f.ErrorIs(outbox.InTx(f.Context(), pool.DB, func(ctx context.Context, tx *sql.Tx) error {
			f.NoError(tx.Commit())
			ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			return pool.PingContext(ctx)
		}), sql.ErrTxDone)
	})
}

// However InTx ends, its connection goes back to the pool, and is the one that the next call has.
func TestTrap_InTxKeepsItsConnection(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		for _, most := range []int{1, 2} {
			var connections atomic.Int32
			pool := faults.Open(t, f.DB, faults.Hooks{Connect: func() { connections.Add(1) }})
			pool.SetMaxOpenConns(most)
			boom := errors.New("boom")
			for _, end := range []error{nil, boom, nil} {
				f.ErrorIs(outbox.InTx(f.Context(), pool, func(context.Context, *sql.Tx) error { return end }), end)
				f.Zero(pool.Stats().InUse)
			}
			f.PanicsWithError("boom", func() {
				_ = outbox.InTx(f.Context(), pool, func(context.Context, *sql.Tx) error { panic(boom) })
			})
			f.Zero(pool.Stats().InUse)
			f.Equal(int32(1), connections.Load())
		}
	})
}

// A server that was restarted leaves broken connections in the pool, more than are tried before a new one is made.
func TestTrap_InTxAmongBrokenConnections(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		const idle = 8
		var broken atomic.Bool
		var connections atomic.Int32
		pool := faults.Open(t, f.DB, faults.Hooks{
			Connect: func() {
				if connections.Add(1) > idle {
					broken.Store(false)
				}
			},
			Fault: func(_ context.Context, s faults.Statement) faults.Fault {
				if broken.Load() && s.Text == faults.Begin {
					return faults.Fault{Kind: faults.BadConn, Err: driver.ErrBadConn}
				}
				return faults.Fault{}
			}})
		open := make([]*sql.Conn, idle)
		for i := range open {
			var err error
			open[i], err = pool.Conn(f.Context())
			f.NoError(err)
		}
		for _, conn := range open {
			f.NoError(conn.Close())
		}
		broken.Store(true)
		calls := 0
		f.NoError(outbox.InTx(f.Context(), pool, func(context.Context, *sql.Tx) error {
			calls++
			return nil
		}))
		f.Equal(1, calls)
		f.Zero(pool.Stats().InUse)
	})
}
