// Package faults opens a database through its own driver, with hooks around every statement: a test sees what is sent,
// waits until it is, or makes it fail as the database would.
package faults

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"sync"
	"testing"

	"github.com/incursa/watermill-outbox/internal/kept"
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

	// Fault chooses what happens to the statement. It is asked after Before. Of a transaction's end, ctx has the values of
	// the context that the transaction began with, and never ends.
	Fault func(ctx context.Context, s Statement) Fault

	// Release ends everything that hangs or is delayed when it is closed.
	Release <-chan struct{}

	// Broken is called with errors that a driver should not return, such as an error of closing.
	Broken func(error)
}

// A Statement is what is sent.
type Statement struct {
	Text string
	Args []any
}

// Open returns another pool on the database and schema of db, with hooks. It is closed when the test ends.
func Open(t testing.TB, db *testdb.DB, hooks Hooks) *sql.DB {
	t.Helper()
	c, err := base(db.Driver(), db.DSN)
	if err != nil {
		t.Fatalf("open %s: %v", db.Name, err)
	}
	if db.Name == testdb.SQLite {
		c = kept.Connector(c) // below, so that hooks see each statement as it was sent
	}
	pool := sql.OpenDB(&connector{c, hooks})
	pool.SetMaxIdleConns(8)
	t.Cleanup(func() {
		if err := pool.Close(); err != nil {
			t.Errorf("closing %s: %v", db.Name, err)
		}
	})
	return pool
}

// Connector connects through a driver, with hooks.
func Connector(d driver.Driver, dsn string, hooks Hooks) (driver.Connector, error) {
	c, err := base(d, dsn)
	if err != nil {
		return nil, err
	}
	return &connector{c, hooks}, nil
}

func base(d driver.Driver, dsn string) (driver.Connector, error) {
	if c, ok := d.(driver.DriverContext); ok {
		return c.OpenConnector(dsn)
	}
	return dsnConnector{d, dsn}, nil
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
