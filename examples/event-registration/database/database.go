// Package database opens the database that a DSN names, and runs a package's statements on it: files of SQL, a folder for
// each database.
package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	_ "github.com/jackc/pgx/v5/stdlib"  // the driver pgx
	_ "github.com/microsoft/go-mssqldb" // the driver sqlserver
	_ "modernc.org/sqlite"              // the driver sqlite

	outbox "github.com/incursa/watermill-outbox"
)

// A Database is a connection pool and what it speaks.
type Database struct {
	*sql.DB
	Dialect outbox.Dialect
	Name    string // sqlite, postgres or sqlserver: the folder of its SQL
}

// Open opens postgres://…, sqlserver://…, or else the file of that name with SQLite, in a pool of so many connections.
func Open(dsn string, connections int) (*Database, error) {
	var (
		out = &Database{}
		err error
	)
	switch {
	case strings.HasPrefix(dsn, "postgres://"), strings.HasPrefix(dsn, "postgresql://"):
		out.Name, out.Dialect = "postgres", outbox.Postgres{}
		out.DB, err = sql.Open("pgx", dsn)
	case strings.HasPrefix(dsn, "sqlserver://"):
		out.Name, out.Dialect = "sqlserver", outbox.SQLServer{}
		out.DB, err = sql.Open("sqlserver", dsn)
	default:
		out.Name, out.Dialect = "sqlite", outbox.SQLite{}
		out.DB, err = outbox.OpenSQLite("sqlite", "file:"+dsn+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(30000)&_pragma=synchronous(NORMAL)&_txlock=immediate")
	}
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	out.SetMaxOpenConns(connections)
	out.SetMaxIdleConns(connections)
	return out, nil
}

// A Queryer is a *sql.DB or a *sql.Tx.
type Queryer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Statements are the statements of a package, by name.
type Statements struct {
	texts      map[string]string
	migrations []string
}

// Load reads sql/<database>/statements and sql/<database>/migrations.
func Load(files fs.FS, db *Database) (*Statements, error) {
	out := &Statements{texts: map[string]string{}}
	for _, folder := range []string{"migrations", "statements"} {
		dir := path.Join("sql", db.Name, folder)
		entries, err := fs.ReadDir(files, dir)
		if err != nil {
			return nil, fmt.Errorf("read the statements: %w", err)
		}
		for _, entry := range entries {
			text, err := fs.ReadFile(files, path.Join(dir, entry.Name()))
			if err != nil {
				return nil, fmt.Errorf("read the statements: %w", err)
			}
			if folder == "migrations" {
				out.migrations = append(out.migrations, string(text))
				continue
			}
			out.texts[strings.TrimSuffix(entry.Name(), ".sql")] = string(text)
		}
	}
	return out, nil
}

// Migrate runs the migrations in the order of their names. Each can be run again.
func (s *Statements) Migrate(ctx context.Context, db *Database) error {
	for _, text := range s.migrations {
		if _, err := db.ExecContext(ctx, text); err != nil {
			return fmt.Errorf("migrate: %w", err)
		}
	}
	return nil
}

// Exec runs a statement and returns how many rows it changed.
func (s *Statements) Exec(ctx context.Context, q Queryer, name string, args ...any) (int64, error) {
	result, err := q.ExecContext(ctx, s.texts[name], args...)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	return result.RowsAffected()
}

// Row runs a query for a single row, and reports whether there was one.
func (s *Statements) Row(ctx context.Context, q Queryer, name string, args, into []any) (bool, error) {
	err := q.QueryRowContext(ctx, s.texts[name], args...).Scan(into...)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("%s: %w", name, err)
	}
	return true, nil
}

// Rows runs a statement and calls scan for each row of its answer.
func (s *Statements) Rows(ctx context.Context, q Queryer, name string, args []any, scan func(*sql.Rows) error) (err error) {
	rows, err := q.QueryContext(ctx, s.texts[name], args...)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return rows.Err()
}
