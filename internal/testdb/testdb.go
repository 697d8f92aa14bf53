// Package testdb gives a test the available databases, each with a schema of its own.
//
// SQLite is always there. The others are named by their DSN in the environment:
//
//	OUTBOX_TEST_POSTGRES_DSN   a PostgreSQL database in which schemas may be created
//	OUTBOX_TEST_SQLSERVER_DSN  a SQL Server database, the same
//	OUTBOX_TEST_ONLY           a list of names, as sqlite,postgres: leaves out all others
//	OUTBOX_TEST_REQUIRE        a list of names: a missing one fails the test
//
// It imports no driver, because it is in the library's module: a test that opens a database imports the driver, or
// internal/conformance/drivers for all of them.
//
// scripts/with-databases sets the first by starting a server. A missing backend is not a skipped test: it has no subtest,
// and with-databases says so at the end of the run.
package testdb

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/incursa/watermill-outbox/internal/kept"
)

// The names of the backends, in the order in which tests run on them.
const (
	SQLite    = "sqlite"
	Postgres  = "postgres"
	SQLServer = "sqlserver"
)

// adminTimeout limits this package's own statements. A cleanup that takes longer is waiting for a lock, and fails.
const adminTimeout = 30 * time.Second

// Backend is a kind of database that tests run on.
type Backend struct {
	// Name is sqlite, postgres or sqlserver.
	Name string

	driver   string
	dsn      string
	maxConns int
}

// DB is a pool of connections to a database of one test.
type DB struct {
	*sql.DB
	Backend

	// Schema is the schema made for this test, to be given to the library's config. It is empty on SQLite, where each
	// test has its own file instead.
	Schema string

	// DSN and DriverName let other processes of a test open the same database.
	DSN        string
	DriverName string
}

// Backends returns the backends of this run. The test ends if a required one is missing, or if there are none.
func Backends(t testing.TB) []Backend {
	t.Helper()
	backends, err := available(os.Getenv)
	if err != nil {
		t.Fatalf("finding the test databases: %v", err)
	}
	return backends
}

// ForEach runs f on every backend, in a subtest named after it. The test may call t.Parallel in f.
func ForEach(t *testing.T, f func(t *testing.T, db *DB)) {
	t.Helper()
	for _, b := range Backends(t) {
		t.Run(b.Name, func(t *testing.T) { f(t, b.Open(t)) })
	}
}

// Open creates a schema (on SQLite: a file) that nobody else uses and connects to it. Both end with the test.
func (b Backend) Open(t testing.TB) *DB {
	t.Helper()
	db := &DB{Backend: b, DSN: b.dsn, DriverName: b.driver}
	if b.Name == SQLite {
		db.DSN = sqliteDSN(filepath.Join(t.TempDir(), "outbox.db"))
	} else {
		db.Schema = "test_" + strings.ToLower(rand.Text()[:12])
		createSchema(t, db)
	}
	return db.connect(t)
}

// Reopen returns another pool on the same database and schema, closed when the test ends.
func (d *DB) Reopen(t testing.TB) *DB {
	t.Helper()
	again := *d
	return again.connect(t)
}

// OneOfMany returns a pool for one of many publishers or subscribers in a process: on PostgreSQL, one of its own. SQLite's writers wait
// for the one lock in no order, and so they queue in a small pool. On SQL Server they share one because some compatible servers need
// a third of a second for each login.
func (d *DB) OneOfMany(t testing.TB) *DB {
	t.Helper()
	switch d.Name {
	case Postgres:
		return d.Reopen(t)
	case SQLite:
		d.SetMaxOpenConns(4)
	}
	return d
}

func (d *DB) connect(t testing.TB) *DB {
	t.Helper()
	open := sql.Open
	if d.Name == SQLite {
		open = kept.Open
	}
	pool, err := open(d.DriverName, d.DSN)
	if err != nil {
		t.Fatalf("opening %s: %v", d.Name, err)
	}
	t.Cleanup(func() {
		if err := pool.Close(); err != nil {
			t.Errorf("closing %s: %v", d.Name, err)
		}
	})
	pool.SetMaxOpenConns(d.maxConns)
	pool.SetMaxIdleConns(d.maxConns)

	ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
	defer cancel()
	if err := pool.PingContext(ctx); err != nil {
		t.Fatalf("connecting to %s: %v", d.Name, err)
	}
	d.DB = pool
	return d
}

func available(getenv func(string) string) ([]Backend, error) {
	all := []Backend{
		{Name: SQLite, driver: "sqlite", maxConns: 8},
		{Name: Postgres, driver: "pgx", dsn: getenv("OUTBOX_TEST_POSTGRES_DSN"), maxConns: 20},
		{Name: SQLServer, driver: "sqlserver", dsn: getenv("OUTBOX_TEST_SQLSERVER_DSN"), maxConns: 20},
	}
	only, err := names(getenv, "OUTBOX_TEST_ONLY")
	if err != nil {
		return nil, err
	}
	required, err := names(getenv, "OUTBOX_TEST_REQUIRE")
	if err != nil {
		return nil, err
	}

	var backends []Backend
	for _, b := range all {
		leftOut := len(only) > 0 && !slices.Contains(only, b.Name)
		there := b.Name == SQLite || b.dsn != ""
		if there && !leftOut {
			backends = append(backends, b)
		} else if slices.Contains(required, b.Name) {
			return nil, fmt.Errorf("OUTBOX_TEST_REQUIRE names %s: OUTBOX_TEST_%s_DSN is not set, or OUTBOX_TEST_ONLY leaves it out",
				b.Name, strings.ToUpper(b.Name))
		}
	}
	if len(backends) == 0 {
		return nil, fmt.Errorf("OUTBOX_TEST_ONLY=%s leaves none", getenv("OUTBOX_TEST_ONLY"))
	}
	return backends, nil
}

// These may be in the lists too; internal/testbroker, internal/testserver, the tests of observe/prometheus and
// internal/testbrowser read them.
const (
	broker     = "rabbitmq"
	redis      = "redis"
	prometheus = "prometheus"
	chromium   = "chromium"
)

// names reads a list of backends and refuses one that does not exist, which would otherwise require or leave out nothing.
func names(getenv func(string) string, key string) ([]string, error) {
	var list []string
	for name := range strings.SplitSeq(getenv(key), ",") {
		switch name = strings.TrimSpace(name); name {
		case "":
		case SQLite, Postgres, SQLServer, broker, redis, prometheus, chromium:
			list = append(list, name)
		default:
			return nil, fmt.Errorf("%s: there is no backend %q", key, name)
		}
	}
	return list, nil
}

func sqliteDSN(path string) string {
	file := url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath()}
	return file.String() + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)&_txlock=immediate"
}
