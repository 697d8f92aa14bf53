package testdb

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"testing"
)

//go:embed sqlserver_objects.sql
var sqlserverObjects string

// createSchema creates the schema of db and drops it when the test ends. Both have a connection of their own, so that
// neither depends on what the test does to its pool.
func createSchema(t testing.TB, db *DB) {
	t.Helper()
	if err := db.admin(func(ctx context.Context, conn *sql.Conn) error {
		return db.exec(ctx, conn, "CREATE SCHEMA "+db.Schema)
	}); err != nil {
		t.Fatalf("creating the schema %s on %s: %v", db.Schema, db.Name, err)
	}
	t.Cleanup(func() {
		if err := db.admin(db.dropSchema); err != nil {
			t.Errorf("dropping the schema %s on %s: %v", db.Schema, db.Name, err)
		}
	})
}

func (d *DB) dropSchema(ctx context.Context, conn *sql.Conn) error {
	if d.Name == Postgres {
		return d.exec(ctx, conn, "DROP SCHEMA "+d.Schema+" CASCADE")
	}
	statements, err := column(ctx, conn, sqlserverObjects, d.Schema)
	if err != nil {
		return fmt.Errorf("listing its objects: %w", err)
	}
	for _, statement := range append(statements, "DROP SCHEMA "+d.Schema) {
		if err := d.exec(ctx, conn, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// admin runs f on one connection, within adminTimeout. A lock that the test left behind is reported much earlier.
func (d *DB) admin(f func(context.Context, *sql.Conn) error) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
	defer cancel()
	pool, err := sql.Open(d.DriverName, d.DSN)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pool.Close()) }()
	conn, err := pool.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()

	limit := "SET lock_timeout = '10s'"
	if d.Name == SQLServer {
		limit = "SET LOCK_TIMEOUT 10000"
	}
	if _, err := conn.ExecContext(ctx, limit); err != nil {
		return err
	}
	return f(ctx, conn)
}

// exec runs a statement, and again if SQL Server chose it as a deadlock's victim: tests that create and drop objects at
// the same time meet in its catalog.
func (d *DB) exec(ctx context.Context, conn *sql.Conn, statement string) error {
	const deadlockVictim = 1205
	for attempt := 1; ; attempt++ {
		_, err := conn.ExecContext(ctx, statement)
		var numbered interface{ SQLErrorNumber() int32 }
		if attempt == 5 || !errors.As(err, &numbered) || numbered.SQLErrorNumber() != deadlockVictim {
			return err
		}
	}
}

func column(ctx context.Context, conn *sql.Conn, query string, args ...any) (values []string, err error) {
	rows, err := conn.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var value string
		if err := rows.Scan(&value); err != nil {
			return nil, err
		}
		values = append(values, value)
	}
	return values, rows.Err()
}
