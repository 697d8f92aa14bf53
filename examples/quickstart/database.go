package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/microsoft/go-mssqldb"
	_ "modernc.org/sqlite"

	outbox "github.com/incursa/watermill-outbox"
)

// A database has the outbox and the tables of this example, all with one prefix of their own.
type database struct {
	*sql.DB
	dialect outbox.Dialect
	name    string // for people
	dsn     string
	prefix  string
	folder  string // of the temporary file, if that is what it is
}

// patience is how long a server may take to answer at the beginning and at the end.
const patience = 10 * time.Second

//go:embed sql/*.sql
var scripts embed.FS

// createDatabase opens a database, a temporary SQLite file if dsn is empty, and creates the tables.
func createDatabase(ctx context.Context, dsn string) (db *database, err error) {
	folder := ""
	if dsn == "" {
		if folder, err = os.MkdirTemp("", "quickstart-"); err != nil {
			return nil, err
		}
		file := url.URL{Path: filepath.ToSlash(filepath.Join(folder, "shop.db"))}
		dsn = "file:" + file.EscapedPath()
	}
	db, err = openDatabase(ctx, dsn, "quickstart_"+strings.ToLower(rand.Text()[:6]))
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	if db.folder = folder; folder != "" {
		db.name += ", embedded, in a temporary file"
	}
	err = outbox.Migrate(ctx, db.DB, outbox.MigrateConfig{Dialect: db.dialect, Table: db.table()})
	if err == nil {
		err = db.createTables(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, db.drop(ctx))
	}
	return db, nil
}

// openDatabase chooses driver and dialect by the scheme of dsn.
func openDatabase(ctx context.Context, dsn, prefix string) (*database, error) {
	db := &database{dsn: dsn, prefix: prefix}
	driver := ""
	switch scheme, _, found := strings.Cut(dsn, ":"); {
	case !found:
		return nil, errors.New("-dsn: does not begin with postgres://, sqlserver:// or file: as it must")
	case scheme == "postgres" || scheme == "postgresql":
		driver, db.name, db.dialect = "pgx", "PostgreSQL", outbox.Postgres{}
	case scheme == "sqlserver":
		driver, db.name, db.dialect = "sqlserver", "SQL Server", outbox.SQLServer{}
	case scheme == "file":
		driver, db.name, db.dialect = "sqlite", "SQLite", outbox.SQLite{}
		if !strings.Contains(dsn, "?") {
			dsn += "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_txlock=immediate"
		}
	default:
		return nil, fmt.Errorf("-dsn: neither postgres://, sqlserver:// nor file: but %q", scheme)
	}
	var err error
	if db.DB, err = sql.Open(driver, dsn); err != nil {
		return nil, fmt.Errorf("-dsn: %w", err)
	}
	db.SetMaxOpenConns(10)
	db.SetMaxIdleConns(10)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := db.PingContext(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("-dsn: cannot connect to %s: %w", db.name, err), db.Close())
	}
	return db, nil
}

// table is the name of the outbox's table.
func (d *database) table() string { return d.prefix + "_outbox" }

// sql puts the names of the tables into a statement, and parameters as the database wants them.
func (d *database) sql(statement string) string {
	statement = inBraces.ReplaceAllStringFunc(statement, func(name string) string {
		return d.dialect.Quote(d.dialect.Traits().Schema) + "." + d.dialect.Quote(d.prefix+"_"+name[1:len(name)-1])
	})
	if d.dialect == (outbox.SQLServer{}) {
		statement = strings.ReplaceAll(statement, "$", "@p")
	}
	return statement
}

var inBraces = regexp.MustCompile(`\{[a-z]+\}`)

// createTables creates the tables of the application. In earnest your own migrations do.
func (d *database) createTables(ctx context.Context) error {
	text, err := fs.ReadFile(scripts, "sql/create_"+d.dialect.Name()+".sql")
	if err != nil {
		return err
	}
	_, err = d.ExecContext(ctx, d.sql(string(text)))
	return err
}

// drop drops all that has the prefix, and closes the database.
func (d *database) drop(ctx context.Context) error {
	// ctx may have ended, and that must not leave anything behind.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	err := d.dropTables(ctx)
	if err != nil {
		err = fmt.Errorf("drop the tables %s_…: %w", d.prefix, err)
	}
	return errors.Join(err, d.Close(), os.RemoveAll(d.folder))
}

func (d *database) dropTables(ctx context.Context) (err error) {
	text, err := fs.ReadFile(scripts, "sql/drop_"+d.dialect.Name()+".sql")
	if err != nil {
		return err
	}
	var statements []string
	err = d.query(ctx, func(rows *sql.Rows) error {
		var statement string
		err := rows.Scan(&statement)
		statements = append(statements, statement)
		return err
	}, d.sql(string(text)), d.prefix)
	if err != nil {
		return err
	}
	for _, statement := range statements {
		if _, err := d.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// query gives each row of an answer to scan.
func (d *database) query(ctx context.Context, scan func(*sql.Rows) error, statement string, args ...any) (err error) {
	rows, err := d.QueryContext(ctx, statement, args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}
