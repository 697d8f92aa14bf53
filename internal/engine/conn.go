package engine

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"

	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/dialect"
	"github.com/incursa/watermill-outbox/internal/limits"
)

// An OwnConn is a connection that the outbox took itself: what runs on it is in the outbox's own transaction, as on a *sql.DB.
type OwnConn struct{ *sql.Conn }

// Ours reports whether what runs on x is in the outbox's own transaction, and not in the caller's.
func Ours(x base.Executor) bool {
	switch x.(type) {
	case *sql.DB, OwnConn:
		return true
	default:
		return false
	}
}

// onOwn runs f on a connection of the pool and gives it back, unless it is of no use to others.
func (e *Engine) onOwn(conn *sql.Conn, f func(base.Executor) (again bool, err error)) (again bool, err error) {
	useless := true // after a panic: f may have begun a transaction
	defer func() {
		if useless {
			discard(conn)
		}
		_ = conn.Close() // its only error is that it was already closed
	}()
	again, err = f(OwnConn{conn})
	useless = e.isReadOnly(err)
	return again, err
}

// Flushing is a caller's transaction for which Before is running: what is run on it there does not call Before again.
type Flushing struct{ *sql.Tx }

// Begin begins a transaction on a connection that can be given up. end rolls it back, unless it was committed, and returns the
// connection to the pool, unless err says that it leads to a server that takes no writes: the pool would keep it for as long as it
// works.
func Begin(ctx context.Context, db *sql.DB) (tx *sql.Tx, end func(err error), err error) {
	if db.Stats().MaxOpenConnections == 1 {
		return beginInPool(ctx, db)
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, nil, err
	}
	tx, err = conn.BeginTx(ctx, nil)
	if errors.Is(err, driver.ErrBadConn) { // the pool may have more of them; db then makes a new one
		_ = conn.Close()
		return beginInPool(ctx, db)
	}
	if err != nil {
		_ = conn.Close()
		return nil, nil, err
	}
	return tx, func(err error) {
		_ = tx.Rollback() // a no-op after the commit; otherwise the caller needs to see why
		giveBack := func() {
			if dialect.IsReadOnly(err) {
				discard(conn)
			}
			_ = conn.Close() // its only error is that it was already closed
		}
		if ctx.Err() != nil { // then database/sql may be rolling back, for as long as a connection that hangs allows
			go giveBack()
			return
		}
		giveBack()
	}, nil
}

// beginInPool is Begin for a transaction whose end returns the connection to the pool at once. With a pool of one, a caller that ends
// the transaction itself and then uses the pool would otherwise wait for ever. end gives up the next connection from the pool, which in
// a pool of one is the same.
func beginInPool(ctx context.Context, db *sql.DB) (tx *sql.Tx, end func(err error), err error) {
	tx, err = db.BeginTx(ctx, nil)
	return tx, func(err error) {
		_ = tx.Rollback() // as above
		if !dialect.IsReadOnly(err) {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limits.Discarding)
		defer cancel()
		if conn, err := db.Conn(ctx); err == nil {
			discard(conn)
		}
	}, err
}

// Elsewhere runs f, which makes a transaction by Begin, again on other connections while those that it had take no writes.
func Elsewhere(f func() error) error {
	for try := 0; ; try++ {
		if err := f(); !dialect.IsReadOnly(err) || try == badConnections || errors.Is(err, base.ErrUnknownOutcome) {
			return err
		}
	}
}
