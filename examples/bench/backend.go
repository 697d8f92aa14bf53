package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/microsoft/go-mssqldb"
	_ "modernc.org/sqlite"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/faults"
)

// A backend is a kind of database that can be measured.
type backend struct {
	name, driver string
	dialect      outbox.Dialect
	embedded     bool

	// keys is how a list of keys is given to a statement.
	keys func([]int64) (any, error)
}

var backends = []backend{
	{"sqlite", "sqlite", outbox.SQLite{}, true, keysAsJSON},
	{"postgres", "pgx", outbox.Postgres{}, false, keysAsArray},
	{"sqlserver", "sqlserver", outbox.SQLServer{}, false, keysAsJSON},
}

func keysAsArray(keys []int64) (any, error) { return keys, nil }

func keysAsJSON(keys []int64) (any, error) {
	text, err := json.Marshal(keys)
	return string(text), err
}

func backendNames() []string {
	names := make([]string, len(backends))
	for i, b := range backends {
		names[i] = b.name
	}
	return names
}

func findBackend(name string) (backend, error) {
	for _, b := range backends {
		if b.name == name {
			return b, nil
		}
	}
	return backend{}, fmt.Errorf("there is no %q; there are %s", name, strings.Join(backendNames(), ", "))
}

// patience is how long a server may take to answer at the beginning and at the end.
const patience = 30 * time.Second

// open opens a pool that the product and the bare statements share.
func (b backend) open(ctx context.Context, dsn string) (*sql.DB, error) {
	open := sql.Open
	if b.embedded { // the bare statements are still compiled at each call, as they are without the product
		open = outbox.OpenSQLite
	}
	db, err := open(b.driver, dsn)
	if err != nil {
		return nil, fmt.Errorf("-dsn: %w", err)
	}
	return b.connected(ctx, db)
}

// openCounted opens another pool, which counts the calls to the database: statements, and the beginnings and ends of transactions.
func (b backend) openCounted(ctx context.Context, d driver.Driver, dsn string, calls *atomic.Int64) (*sql.DB, error) {
	connector, err := faults.Connector(d, dsn, faults.Hooks{Before: func(context.Context, faults.Statement) error {
		calls.Add(1)
		return nil
	}})
	if err != nil {
		return nil, fmt.Errorf("-dsn: %w", err)
	}
	return b.connected(ctx, sql.OpenDB(connector))
}

// connected looks whether there is a database.
func (b backend) connected(ctx context.Context, db *sql.DB) (*sql.DB, error) {
	db.SetMaxOpenConns(poolSize)
	db.SetMaxIdleConns(poolSize)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := db.PingContext(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("-dsn: cannot connect to %s: %w", b.name, err), db.Close())
	}
	return db, nil
}

// temporaryFile makes a folder for a database and returns it with the DSN of the file in it.
func temporaryFile() (folder, dsn string, err error) {
	if folder, err = os.MkdirTemp("", "bench-"); err != nil {
		return "", "", err
	}
	file := url.URL{Path: filepath.ToSlash(filepath.Join(folder, "bench.db"))}
	return folder, "file:" + file.EscapedPath() + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_txlock=immediate", nil
}
