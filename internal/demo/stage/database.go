// Package stage is what the stories of make demo share: their mains, a database with names of its own, and a screen.
package stage

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

// A Database has the outbox and the tables of a story, all with one prefix of their own.
type Database struct {
	*sql.DB
	Dialect outbox.Dialect
	Name    string // for people
	DSN     string
	Prefix  string
	folder  string // of the temporary file, if that is what it is
}

// patience is how long a server may take to answer at the beginning and at the end.
const patience = 30 * time.Second

// Create opens a database, a temporary SQLite file if dsn is empty, and creates the outbox there and the tables of the
// story. Their prefix begins with its name.
func Create(ctx context.Context, dsn, story string, tables fs.FS) (db *Database, err error) {
	folder := ""
	if dsn == "" {
		if folder, err = os.MkdirTemp("", story+"-"); err != nil {
			return nil, err
		}
		file := url.URL{Path: filepath.ToSlash(filepath.Join(folder, story+".db"))}
		dsn = "file:" + file.EscapedPath()
	}
	db, err = Open(ctx, dsn, story+"_"+strings.ToLower(rand.Text()[:6]))
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	if db.folder = folder; folder != "" {
		db.Name += ", embedded, in a temporary file"
	}
	err = outbox.Migrate(ctx, db.DB, outbox.MigrateConfig{Dialect: db.Dialect, Table: db.Table()})
	if err == nil {
		err = db.createTables(ctx, tables)
	}
	if err != nil {
		return nil, errors.Join(err, db.Drop(ctx))
	}
	return db, nil
}

// Open chooses driver and dialect by the scheme of dsn.
func Open(ctx context.Context, dsn, prefix string) (*Database, error) {
	db := &Database{DSN: dsn, Prefix: prefix}
	driver, open := "", sql.Open
	switch scheme, _, found := strings.Cut(dsn, ":"); {
	case !found:
		return nil, errors.New("-dsn: does not begin with postgres://, sqlserver:// or file: as it must")
	case scheme == "postgres" || scheme == "postgresql":
		driver, db.Name, db.Dialect = "pgx", "PostgreSQL", outbox.Postgres{}
	case scheme == "sqlserver":
		driver, db.Name, db.Dialect = "sqlserver", "SQL Server", outbox.SQLServer{}
	case scheme == "file":
		driver, db.Name, db.Dialect, open = "sqlite", "SQLite", outbox.SQLite{}, outbox.OpenSQLite
		if !strings.Contains(dsn, "?") {
			dsn += "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_txlock=immediate"
		}
	default:
		return nil, fmt.Errorf("-dsn: neither postgres://, sqlserver:// nor file: but %q", scheme)
	}
	var err error
	if db.DB, err = open(driver, dsn); err != nil {
		return nil, fmt.Errorf("-dsn: %w", err)
	}
	db.SetMaxOpenConns(10)
	db.SetMaxIdleConns(10)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := db.PingContext(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("-dsn: cannot connect to %s: %w", db.Name, err), db.Close())
	}
	return db, nil
}

// Table is the name of the outbox's table.
func (d *Database) Table() string { return d.Prefix + "_outbox" }

// SQL puts the names of the tables into a statement, and parameters as the database wants them.
func (d *Database) SQL(statement string) string {
	statement = inBraces.ReplaceAllStringFunc(statement, func(name string) string {
		return d.Dialect.Quote(d.Dialect.Traits().Schema) + "." + d.Dialect.Quote(d.Prefix+"_"+name[1:len(name)-1])
	})
	if d.Dialect == (outbox.SQLServer{}) {
		statement = strings.ReplaceAll(statement, "$", "@p")
	}
	return statement
}

var inBraces = regexp.MustCompile(`\{[a-z_]+\}`)

// createTables creates the tables of the application. In earnest your own migrations do.
func (d *Database) createTables(ctx context.Context, tables fs.FS) error {
	text, err := fs.ReadFile(tables, "sql/create_"+d.Dialect.Name()+".sql")
	if err != nil {
		return err
	}
	_, err = d.ExecContext(ctx, d.SQL(string(text)))
	return err
}

// Query gives each row of an answer to scan.
func (d *Database) Query(ctx context.Context, scan func(*sql.Rows) error, statement string, args ...any) error {
	return query(ctx, d.DB, scan, d.SQL(statement), args...)
}

func query(ctx context.Context, db *sql.DB, scan func(*sql.Rows) error, statement string, args ...any) (err error) {
	rows, err := db.QueryContext(ctx, statement, args...)
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

// Drop drops all that has the prefix, and closes the database.
func (d *Database) Drop(ctx context.Context) error {
	// ctx may have ended, and that must not leave anything behind.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	return errors.Join(Drop(ctx, d.DB, d.Dialect, d.Prefix), d.Close(), os.RemoveAll(d.folder))
}

// Drop drops all tables, views and functions whose name begins with a prefix.
func Drop(ctx context.Context, db *sql.DB, dialect outbox.Dialect, prefix string) error {
	statements, err := DropStatements(ctx, db, dialect, prefix)
	for _, statement := range statements {
		if err == nil {
			_, err = db.ExecContext(ctx, statement)
		}
	}
	if err != nil {
		return fmt.Errorf("drop the tables %s_…: %w", prefix, err)
	}
	return nil
}

//go:embed sql/*.sql
var scripts embed.FS

// DropStatements are those that drop them, in order; there are none where nothing is left.
func DropStatements(ctx context.Context, db *sql.DB, dialect outbox.Dialect, prefix string) (statements []string, err error) {
	text, err := fs.ReadFile(scripts, "sql/drop_"+dialect.Name()+".sql")
	if err != nil {
		return nil, err
	}
	err = query(ctx, db, func(rows *sql.Rows) error {
		var statement string
		err := rows.Scan(&statement)
		statements = append(statements, statement)
		return err
	}, string(text), prefix)
	return statements, err
}
