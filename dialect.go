package outbox

import (
	"database/sql"
	"errors"

	"github.com/incursa/watermill-outbox/internal/dialect"
	"github.com/incursa/watermill-outbox/internal/field"
	"github.com/incursa/watermill-outbox/internal/kept"
)

// A Dialect is the database that an outbox is in: SQLServer{}, Postgres{} or SQLite{}. There are no others.
type Dialect = dialect.Dialect

// SQLServer is the dialect of SQL Server 2019 and later (compatibility level 130 and up) and Azure SQL, through
// github.com/microsoft/go-mssqldb.
type SQLServer = dialect.SQLServer

// Postgres is the dialect of PostgreSQL 14 and later, through pgx's or lib/pq's database/sql driver.
type Postgres = dialect.Postgres

// SQLite is the dialect of SQLite 3.45 and later through modernc.org/sqlite, which needs no C compiler.
// Open the database with OpenSQLite, with WAL, a busy timeout and immediate transactions:
//
//	file:orders.db?_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)&_txlock=immediate
type SQLite = dialect.SQLite

// OpenSQLite is sql.Open for SQLite. Its connections keep the outbox's statements compiled; the driver alone would compile
// them at every call, which is a quarter to a half of the work of most workers. Your own statements run as with sql.Open.
// The connection that (*sql.Conn).Raw passes has a method Unwrap, which returns the driver's connection.
//
// It returns a *FieldError for the driver of another database, and for a DSN that would fail later: one of a database in memory, one that
// does not mean to SQLite what it seems to say, or one that lacks a setting that SQLite names. Other values are allowed, except for a
// timeout of 0; _pragma=journal_mode leaves the mode as the file has it.
func OpenSQLite(driverName, dsn string) (*sql.DB, error) {
	db, err := kept.Open(driverName, dsn)
	if err != nil {
		return nil, err
	}
	err = field.Problem("driverName", dialect.NotSQLite(db))
	if err == nil {
		err = field.Problem("dsn", dialect.SQLiteDSN(dsn))
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// IsRetryable reports whether err means that the transaction should be run again: a deadlock victim, a serialization
// failure, a lock timeout, a busy database. In its own transactions the outbox has already retried before it returns such an
// error; in yours, roll back and run the transaction again.
// Work that may have been committed (ErrUnknownOutcome) is not retryable.
func IsRetryable(err error) bool {
	if errors.Is(err, ErrUnknownOutcome) {
		return false
	}
	for _, d := range []Dialect{SQLServer{}, Postgres{}, SQLite{}} {
		if d.Classify(err) == dialect.ErrorRetryable {
			return true
		}
	}
	return false
}
