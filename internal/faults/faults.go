// Package faults opens a database through its own driver, with hooks around every statement: a test sees what is sent,
// waits until it is, or makes it fail as the database would.
package faults

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"sync"
	"testing"

	"github.com/incursa/watermill-outbox/internal/testdb"
)

// The statements of a transaction, as hooks see them.
const (
	Begin    = "BEGIN"
	Commit   = "COMMIT"
	Rollback = "ROLLBACK"
)

// Hooks are called around each statement that is sent. Each may be nil, and must be safe for concurrent use.
type Hooks struct {
	// Connect is called before each connection is made.
	Connect func()

	// Before is called first. If it returns an error, that is the statement's result and nothing is sent.
	Before func(ctx context.Context, s Statement) error

	// After is called when the statement has been run. The rows of a query are yet to be read.
	After func(ctx context.Context, s Statement, err error)

	// Answer is called after that, if there is no error. If it returns one, that is the statement's result although it has
	// been run: the answer was lost on its way.
	Answer func(ctx context.Context, s Statement) error
}

// A Statement is what is sent.
type Statement struct {
	Text string
	Args []any
}

// Open returns another pool on the database and schema of db, with hooks. It is closed when the test ends.
func Open(t testing.TB, db *testdb.DB, hooks Hooks) *sql.DB {
	t.Helper()
	base, err := baseConnector(db)
	if err != nil {
		t.Fatalf("open %s: %v", db.Name, err)
	}
	pool := sql.OpenDB(&connector{base, hooks})
	pool.SetMaxIdleConns(8)
	t.Cleanup(func() {
		if err := pool.Close(); err != nil {
			t.Errorf("closing %s: %v", db.Name, err)
		}
	})
	return pool
}

func baseConnector(db *testdb.DB) (driver.Connector, error) {
	d := db.Driver()
	if c, ok := d.(driver.DriverContext); ok {
		return c.OpenConnector(db.DSN)
	}
	return dsnConnector{d, db.DSN}, nil
}

// A Log keeps what was sent, in order.
type Log struct {
	mu         sync.Mutex
	statements []Statement
}

// Hooks returns hooks that fill the log.
func (l *Log) Hooks() Hooks {
	return Hooks{Before: func(_ context.Context, s Statement) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.statements = append(l.statements, s)
		return nil
	}}
}

// Take returns what was sent since the last call.
func (l *Log) Take() []Statement {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := l.statements
	l.statements = nil
	return taken
}

// An Error is one that a database might return. It answers to each driver's way of asking for its number.
type Error struct {
	Number int32  // SQL Server's
	State  string // PostgreSQL's SQLSTATE
	Result int    // SQLite's result code
}

// Deadlock returns the error by which each database says that a transaction lost a conflict and may be run again.
func Deadlock(backend string) *Error {
	switch backend {
	case testdb.Postgres:
		return &Error{State: "40P01"}
	case testdb.SQLServer:
		return &Error{Number: 1205}
	default:
		return &Error{Result: 5}
	}
}

func (e *Error) Error() string {
	return fmt.Sprintf("injected error: number %d, SQLSTATE %q, result code %d", e.Number, e.State, e.Result)
}

// SQLErrorNumber is how go-mssqldb tells the number.
func (e *Error) SQLErrorNumber() int32 { return e.Number }

// SQLState is how pgx tells it.
func (e *Error) SQLState() string { return e.State }

// Code is how modernc.org/sqlite tells it.
func (e *Error) Code() int { return e.Result }
