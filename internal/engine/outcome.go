package engine

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"

	"github.com/incursa/watermill-outbox/internal/base"
)

// After an error, a transaction is known not to have been committed only if the error proves it. Otherwise its outcome is
// unknown.

// commitsItself reports whether a statement on x is its own transaction. On a caller's *sql.Conn it is assumed to be:
// a caller that has begun a transaction there knows better.
func commitsItself(x base.Executor) bool {
	switch x.(type) {
	case OwnConn, *sql.Conn:
		return true
	default:
		return false
	}
}

// unknown marks the error of a COMMIT, or of a statement that commits itself, unless it proves that nothing was committed.
func unknown(err error) error {
	if err == nil || neverCommitted(err) {
		return err
	}
	return fmt.Errorf("%w: %w", base.ErrUnknownOutcome, err)
}

// claimedUnread is the error of Outbox_Taken on SQL Server that comes after the commit.
const claimedUnread = 51206

// neverCommitted reports whether err proves that the statement it comes from was never sent, or was refused.
func neverCommitted(err error) bool {
	var unsent interface{ SafeToRetry() bool } // of pgx
	var refusal *base.JoinRefusal
	var server interface{ SQLErrorNumber() int32 }
	switch {
	case errors.Is(err, base.ErrUnknownOutcome):
		return false
	case errors.As(err, &server) && server.SQLErrorNumber() == claimedUnread:
		return false
	case errors.Is(err, driver.ErrBadConn), errors.Is(err, sql.ErrConnDone), errors.Is(err, sql.ErrTxDone):
		return true // drivers and database/sql return these only if nothing was sent
	case errors.As(err, &unsent) && unsent.SafeToRetry():
		return true
	case errors.As(err, &refusal):
		return true
	default:
		return FromDatabase(err)
	}
}

// FromDatabase reports whether err is the database's answer, and not a broken connection.
// Each driver's errors have one of these methods.
func FromDatabase(err error) bool {
	var postgres interface{ SQLState() string }
	if errors.As(err, &postgres) && postgres.SQLState() != "" {
		return !endsConnection(postgres.SQLState())
	}
	var sqlite interface{ Code() int }
	if errors.As(err, &sqlite) && sqlite.Code() != 0 {
		return true
	}
	var fatal interface{ SQLErrorClass() uint8 }
	if errors.As(err, &fatal) { // errors of go-mssqldb itself have no number, but a class
		return fatal.SQLErrorClass() < lastingClass
	}
	var server interface{ SQLErrorNumber() int32 }
	return errors.As(err, &server) && server.SQLErrorNumber() != 0
}

// lastingClass is the lowest class of SQL Server errors that end the connection.
const lastingClass = 20

// endsConnection reports whether an SQLSTATE says that the connection ended, or that the statement's outcome is unknown.
func endsConnection(state string) bool {
	return strings.HasPrefix(state, "08") || strings.HasPrefix(state, "57P0") || state == "40003"
}

// Partly marks the error of a batch when earlier batches on x may have been committed.
func Partly(x base.Executor, err error) error {
	if !Ours(x) || errors.Is(err, base.ErrUnknownOutcome) {
		return err
	}
	return fmt.Errorf("%w: a part was: %w", base.ErrUnknownOutcome, err)
}

// Commit commits tx, unless ctx has ended: a commit that was not sent certainly did not happen.
//
// Here neither driver.ErrBadConn nor SafeToRetry proves anything: pgx's "conn closed" and lib/pq's bad connection are
// also returned when the commit was sent and its answer was lost.
func Commit(ctx context.Context, tx *sql.Tx) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("commit the transaction: %w", err)
	}
	err := tx.Commit()
	switch {
	case err == nil:
		return nil
	case errors.Is(err, sql.ErrTxDone), FromDatabase(err):
		return fmt.Errorf("commit the transaction: %w", err)
	case becameRollback(err):
		return fmt.Errorf("commit the transaction: a statement in it had failed, so PostgreSQL rolled it back; return the error of that statement: %w", err)
	default:
		return fmt.Errorf("commit the transaction: %w: %w", base.ErrUnknownOutcome, err)
	}
}

// becameRollback reports whether PostgreSQL answered COMMIT with ROLLBACK, as it does once a statement has failed. That is no
// error of the server: the drivers make one of their own, a variable without a number. Here alone an error is decided by its
// text, whole and in no other place than a commit; should a driver change it, the outcome is called unknown again.
func becameRollback(err error) bool {
	for ; err != nil; err = errors.Unwrap(err) {
		switch strings.ToLower(err.Error()) {
		case "commit unexpectedly resulted in rollback", // pgx.ErrTxCommitRollback
			"pq: could not complete operation in a failed transaction": // lib/pq's
			return true
		}
	}
	return false
}
