package engine

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/dialect"
	"github.com/incursa/watermill-outbox/internal/limits"
)

// A transaction brackets several statements: as a transaction of the outbox's own, or as part of the caller's.
type transaction struct {
	begin, end, rollback string

	commits bool // only its end commits, so a rollback that succeeds proves that nothing was committed
}

var errRollback = errors.New("roll back")

// bracket undoes what f did if it returns an error.
func bracket(ctx context.Context, x base.Executor, t transaction, f func() error) error {
	if _, err := x.ExecContext(ctx, t.begin); err != nil {
		if _, own := x.(OwnConn); own && ctx.Err() != nil {
			// SQLite's driver may have begun even though it reports that the context ended. If it has not, this changes nothing.
			_ = t.undo(ctx, x)
		}
		return err
	}
	err, ending := f(), false
	if err == nil && t.end != "" {
		_, err = x.ExecContext(ctx, t.end)
		ending = true
	}
	if err == nil {
		return nil
	}
	rollbackErr := t.undo(ctx, x)
	if rollbackErr == nil {
		return err
	}
	if t.commits && ending {
		err = unknown(err)
	}
	if FromDatabase(rollbackErr) { // SQLite's "nothing to roll back" must not pass for the original error
		return errors.Join(err, fmt.Errorf("%w: %v", errRollback, rollbackErr)) //nolint:errorlint // its number means nothing here
	}
	return errors.Join(err, fmt.Errorf("%w: %w", errRollback, rollbackErr))
}

// undo rolls back, even after ctx has ended.
func (t transaction) undo(ctx context.Context, x base.Executor) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limits.RollingBack)
	defer cancel()
	_, err := x.ExecContext(ctx, t.rollback)
	return err
}

var savepoints atomic.Uint64

// savepoint has a name of its own: SQL Server goes back to the latest of a name, which need not be that of the outer of two.
func savepoint(traits dialect.Traits) transaction {
	named := strings.NewReplacer("{savepoint}", fmt.Sprintf("outbox_%d", savepoints.Add(1)))
	return transaction{begin: named.Replace(traits.Savepoint), end: named.Replace(traits.Release), rollback: named.Replace(traits.Restore)}
}

// ownTransaction is one of the outbox's own.
func ownTransaction(traits dialect.Traits) transaction {
	return transaction{begin: traits.Begin, end: "COMMIT", rollback: "ROLLBACK", commits: true}
}

// InSavepoint undoes only what f did in the caller's transaction if it returns an error.
// On a *sql.Conn without a transaction it begins its own.
func (e *Engine) InSavepoint(ctx context.Context, x base.Executor, f func(x base.Executor) error) error {
	if err := e.before(ctx, x); err != nil { // or undoing f would undo that, too
		return err
	}
	conn, alone := x.(*sql.Conn)
	switch {
	case !alone:
		return e.nested(ctx, x, func() error { return f(x) })
	case !e.Dialect.Traits().Procedures:
		return e.asWriter(ctx, conn, f)
	}
	err := e.nested(ctx, conn, func() error { return f(inside{conn}) })
	if e.Dialect.Classify(err) != dialect.ErrorNoTransaction {
		return err
	}
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin the transaction: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // a no-op after the commit; otherwise the returned error says why
	if err := f(tx); err != nil {
		return err
	}
	return Commit(ctx, tx)
}

func (e *Engine) nested(ctx context.Context, x base.Executor, f func() error) error {
	err := bracket(ctx, x, savepoint(e.Dialect.Traits()), f)
	if errors.Is(err, errRollback) {
		cutOff(x)
	}
	return err
}

// asWriter is InSavepoint on a connection to SQLite. There, an outermost savepoint begins with a reader's lock; a write in it then fails
// at once beside another writer, whatever the timeout. So it begins a transaction, which waits, unless the caller has begun one.
func (e *Engine) asWriter(ctx context.Context, conn *sql.Conn, f func(x base.Executor) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	begun := false
	err := bracket(ctx, conn, ownTransaction(e.Dialect.Traits()), func() error {
		begun = true
		return f(inside{conn})
	})
	switch {
	case err == nil:
		return nil
	case !begun && e.Dialect.Classify(err) == dialect.ErrorSchema: // the class of "cannot start a transaction within a transaction"
		return e.nested(ctx, conn, func() error { return f(inside{conn}) })
	case !begun && ctx.Err() != nil, errors.Is(err, errRollback): // in the first case, too, the driver may have begun
		cutOff(conn)
	}
	return err
}

// inside is a connection on which a transaction has begun.
type inside struct{ *sql.Conn }

// cutOff ends the transaction of a call that was cut off by its context, or cannot be undone. SQL Server then runs neither a
// procedure's CATCH nor the rollback to its savepoint: a caller's transaction keeps half of its work, such as a step that has ended but
// is not counted, and a transaction of the outbox's own can stay open on its connection, with all its locks. PostgreSQL also refuses
// to commit in this state. SQLite, interrupted in a write, has rolled back the whole transaction: what came after would commit by
// itself.
func cutOff(x base.Executor) {
	switch x := x.(type) {
	case *sql.Tx:
		_ = x.Rollback() // a later Commit then fails
	case Flushing:
		_ = x.Rollback()
	case OwnConn:
		discard(x.Conn)
	case *sql.Conn:
		discard(x)
	}
}

// discard closes a connection instead of returning it to its pool; nothing more can be run on it. database/sql waits with that for a
// *sql.Tx that was begun on it, which may be up to a caller who waits for this call: so discard does not wait long.
func discard(conn *sql.Conn) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	}()
	select {
	case <-closed:
	case <-time.After(limits.Discarding):
	}
}
