package main

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	_ "modernc.org/sqlite"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/stores"
)

//go:embed sql/create.sql
var createTables string

// A folder has a file for each tenant: acme.db is that of acme. A tenant that has a file acme.gone beside it is not served.
type folder string

var _ stores.Discovery = folder("")

// Databases implements stores.Discovery: tenants are what files there are.
func (f folder) Databases(context.Context) ([]stores.Database, error) {
	files, err := os.ReadDir(string(f)) // in alphabetical order
	if err != nil {
		return nil, err
	}
	var databases []stores.Database
	for _, file := range files {
		tenant, is := strings.CutSuffix(file.Name(), ".db")
		if !is {
			continue
		}
		switch _, err := os.Stat(f.file(tenant + ".gone")); {
		case err == nil:
			continue
		case !errors.Is(err, os.ErrNotExist):
			return nil, err // not knowing is no reason to stop serving
		}
		databases = append(databases, stores.Database{ID: tenant, Dialect: outbox.SQLite{}, Driver: "sqlite", DSN: dsn(f.file(file.Name()))})
	}
	return databases, nil
}

func (f folder) file(name string) string { return filepath.Join(string(f), name) }

// dsn is for a file that is there: a tenant is not created by looking for it.
func dsn(file string) string {
	name := url.URL{Path: filepath.ToSlash(file)}
	return "file:" + name.EscapedPath() + "?mode=rw&_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_txlock=immediate"
}

// add makes the files of tenants, with nothing in them yet.
func (f folder) add(tenants ...string) error {
	for _, tenant := range tenants {
		if err := os.WriteFile(f.file(tenant+".db"), nil, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// provision makes the database of a new tenant, and moves it into the folder when it is complete.
func (f folder) provision(ctx context.Context, tenant string) (err error) {
	draft := f.file(tenant + ".new")
	if err := os.WriteFile(draft, nil, 0o600); err != nil {
		return err
	}
	db, err := sql.Open("sqlite", dsn(draft))
	if err != nil {
		return err
	}
	err = outbox.Migrate(ctx, db, outbox.MigrateConfig{Dialect: outbox.SQLite{}})
	if err == nil {
		_, err = db.ExecContext(ctx, createTables)
	}
	if err = errors.Join(err, db.Close()); err != nil {
		return err
	}
	return os.Rename(draft, f.file(tenant+".db"))
}

// remove says that a tenant is not to be served any more.
func (f folder) remove(tenant string) error {
	return os.WriteFile(f.file(tenant+".gone"), nil, 0o600)
}
