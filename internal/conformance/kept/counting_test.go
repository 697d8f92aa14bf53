package kept_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"maps"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"modernc.org/sqlite"

	"github.com/incursa/watermill-outbox/internal/kept"
)

// A connection is what kept asks of a driver's.
type connection interface {
	driver.Conn
	driver.ConnPrepareContext
	driver.ConnBeginTx
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

// A counter counts, below the connections that keep statements, what SQLite's driver is asked to compile.
type counter struct {
	mu        sync.Mutex
	compiled  map[string]int // by text, the most on one connection
	direct    map[string]int // by text: run without being prepared, and so compiled for this once
	open      int            // prepared and not closed
	mostOpen  int
	connected int
}

func newCounter() *counter {
	return &counter{compiled: map[string]int{}, direct: map[string]int{}}
}

// openFile opens a database in a file of the test's own, with a pool of the size.
func (c *counter) openFile(t *testing.T, connections int) *sql.DB {
	t.Helper()
	file := filepath.ToSlash(filepath.Join(t.TempDir(), "kept.db"))
	base, err := sqlite.NewConnector("file:" + file + "?_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)&_txlock=immediate")
	require.NoError(t, err)
	db := sql.OpenDB(kept.Connector(counted{base, c}))
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("closing the database: %v", err)
		}
		require.Zero(t, c.left(), "statements that nobody has closed")
		require.NoFileExists(t, file+"-wal", "SQLite removes it with the last connection, unless a statement is left")
	})
	return db
}

// reset forgets what was counted, but not what is open.
func (c *counter) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.compiled)
	clear(c.direct)
}

func (c *counter) counts() (compiled, direct map[string]int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.compiled), maps.Clone(c.direct)
}

func (c *counter) left() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open
}

func (c *counter) add(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

type counted struct {
	driver.Connector
	counter *counter
}

func (c counted) Connect(ctx context.Context) (driver.Conn, error) {
	base, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	full, ok := base.(connection)
	if !ok {
		return nil, fmt.Errorf("the driver's connection is a %T", base)
	}
	c.counter.add(func() { c.counter.connected++ })
	return &countedConn{full, c.counter, map[string]int{}}, nil
}

type countedConn struct {
	connection
	counter  *counter
	compiled map[string]int
}

func (c *countedConn) PrepareContext(ctx context.Context, text string) (driver.Stmt, error) {
	s, err := c.connection.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	k := c.counter
	k.add(func() {
		c.compiled[text]++
		k.compiled[text] = max(k.compiled[text], c.compiled[text])
		k.open++
		k.mostOpen = max(k.mostOpen, k.open)
	})
	return &countedStmt{Stmt: s, counter: k}, nil
}

func (c *countedConn) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	c.counter.add(func() { c.counter.direct[text]++ })
	return c.connection.ExecContext(ctx, text, args)
}

func (c *countedConn) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	c.counter.add(func() { c.counter.direct[text]++ })
	return c.connection.QueryContext(ctx, text, args)
}

type countedStmt struct {
	driver.Stmt
	counter *counter
	closed  bool
}

func (s *countedStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args) //nolint:errcheck // SQLite's are
}

func (s *countedStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args) //nolint:errcheck // SQLite's are
}

func (s *countedStmt) Close() error {
	s.counter.add(func() {
		if !s.closed {
			s.counter.open--
		}
		s.closed = true
	})
	return s.Stmt.Close()
}
