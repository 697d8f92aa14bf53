package suite

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
)

// How probes ask: on a table of their own in the test's schema, with two connections.

const probeName = "outbox_capability_probe"

// WithProbe creates a table with the rows 1 and 2, runs f with its name and two connections, and drops it.
// On SQLite a connection then waits for a lock only for a moment.
func WithProbe(ctx context.Context, db *testdb.DB, f func(probe string, one, two *sql.Conn) (string, error)) (string, error) {
	impatient := *db
	impatient.DSN = strings.Replace(db.DSN, "busy_timeout(10000)", "busy_timeout(200)", 1)
	return withPatientProbe(ctx, &impatient, f)
}

// withPatientProbe does the same with connections as the tests have them.
func withPatientProbe(ctx context.Context, db *testdb.DB, f func(probe string, one, two *sql.Conn) (string, error)) (lacks string, err error) {
	probe := probeName
	if db.Schema != "" {
		probe = db.Schema + "." + probeName
	}
	for _, statement := range []string{
		"CREATE TABLE " + probe + " (id INT NOT NULL PRIMARY KEY, n INT NOT NULL)",
		"INSERT INTO " + probe + " (id, n) VALUES (1, 0), (2, 0)",
	} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return "", err
		}
	}
	defer func() {
		_, dropErr := db.ExecContext(context.WithoutCancel(ctx), "DROP TABLE "+probe)
		err = errors.Join(err, dropErr)
	}()
	pool, err := sql.Open(db.DriverName, db.DSN)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, pool.Close()) }()
	one, err := pool.Conn(ctx)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, one.Close()) }()
	two, err := pool.Conn(ctx)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, two.Close()) }()
	return f(probe, one, two)
}

// ProbeWhileLocked runs f while a transaction on holder keeps the locks of a statement. A server that makes f wait is
// freed after two seconds, because not every server lets a waiting statement be cancelled.
func ProbeWhileLocked(ctx context.Context, db *testdb.DB, holder *sql.Conn, statement string, f func(context.Context) (string, error)) (string, error) {
	tx, err := holder.BeginTx(ctx, nil)
	if err != nil {
		return "", err
	}
	defer func() { _ = tx.Rollback() }() // for the returns before it is rolled back below; a second one is a no-op
	rows, err := tx.QueryContext(ctx, statement)
	if err != nil {
		return "", err
	}
	for rows.Next() { // to the end, so that everything is locked
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return "", err
	}

	type result struct {
		lacks string
		err   error
	}
	done := make(chan result, 1)
	go func() {
		lacks, err := f(ctx)
		done <- result{lacks, err}
	}()
	freed := time.NewTimer(2 * time.Second)
	defer freed.Stop()
	select {
	case r := <-done:
		return r.lacks, errors.Join(r.err, tx.Rollback())
	case <-freed.C:
		err := tx.Rollback()
		r := <-done
		if r.lacks == "" {
			r.lacks = "it waited until the lock was given up"
		}
		return r.lacks, errors.Join(r.err, err)
	}
}

func lacking(err error, what string) string {
	if err == nil {
		return ""
	}
	return what
}

// ProbeValue asks for a value with the database's query, and says so if it is another than wanted.
func ProbeValue(ctx context.Context, db *testdb.DB, queries map[string]string, want string) (string, error) {
	var got string
	if err := db.QueryRowContext(ctx, queries[db.Name]).Scan(&got); err != nil {
		return "", err
	}
	if got != want {
		return fmt.Sprintf("%s answers %s", queries[db.Name], got), nil
	}
	return "", nil
}

func probeLongName(ctx context.Context, db *testdb.DB) (lacks string, err error) {
	d := testoutbox.Dialect(db.Name)
	if d.Traits().FixedSchema {
		return "", nil
	}
	name := strings.Repeat("n", d.Traits().MaxName)
	table := d.Quote(db.Schema) + "." + d.Quote(name)
	if _, err := db.ExecContext(ctx, "CREATE TABLE "+table+" (id INT NOT NULL)"); err != nil {
		return "", err
	}
	defer func() {
		_, dropErr := db.ExecContext(context.WithoutCancel(ctx), "DROP TABLE "+table)
		err = errors.Join(err, dropErr)
	}()
	var n int
	err = db.QueryRowContext(ctx, "SELECT COUNT(*) FROM INFORMATION_SCHEMA.TABLES WHERE TABLE_SCHEMA = '"+db.Schema+
		"' AND TABLE_NAME = '"+name+"'").Scan(&n)
	if err == nil && n == 0 {
		return fmt.Sprintf("a table name of %d characters is changed", len(name)), nil
	}
	return "", err
}

// probeUser makes a user, acts as it, and goes back.
func probeUser(ctx context.Context, db *testdb.DB) (string, error) {
	user := "outbox_probe_" + strings.ToLower(rand.Text()[:8])
	create, become, back, drop := "CREATE ROLE "+user, "SET ROLE "+user, "RESET ROLE", "DROP ROLE "+user
	if db.Name == testdb.SQLServer {
		create, become, back, drop = "CREATE USER "+user+" WITHOUT LOGIN", "EXECUTE AS USER = '"+user+"'", "REVERT", "DROP USER "+user
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }() // gives it back to the pool
	if _, err := conn.ExecContext(ctx, create); err != nil {
		return fmt.Sprintf("%s: %v", create, err), nil
	}
	defer func() { _, _ = conn.ExecContext(context.WithoutCancel(ctx), drop) }() // all that can fail has been probed
	for _, statement := range []string{become, back} {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return fmt.Sprintf("%s: %v", statement, err), nil
		}
	}
	return "", nil
}

// probeThrow has a procedure of its own violate a constraint in a caller's transaction, clean up and throw.
func probeThrow(probe string, conn, _ *sql.Conn) (lacks string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	for _, statement := range []string{
		"ALTER TABLE " + probe + " ADD CONSTRAINT " + probeName + "_c CHECK (n >= 0)",
		"CREATE PROCEDURE " + probe + `_p AS
		BEGIN
			SET XACT_ABORT OFF;
			BEGIN TRY
				SAVE TRANSACTION here;
				INSERT INTO ` + probe + ` (id, n) VALUES (3, 0);
				INSERT INTO ` + probe + ` (id, n) VALUES (4, -1);
			END TRY
			BEGIN CATCH
				IF XACT_STATE() = 1 ROLLBACK TRANSACTION here;
				THROW;
			END CATCH
		END`,
	} {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return "", err
		}
	}
	defer func() {
		_, dropErr := conn.ExecContext(ctx, "DROP PROCEDURE "+probe+"_p")
		err = errors.Join(err, dropErr)
	}()
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return "", err
	}
	defer func() { _ = tx.Rollback() }() // whatever is left of it
	if _, err := tx.ExecContext(ctx, "EXEC "+probe+"_p"); err == nil {
		return "", errors.New("what a constraint forbids was not refused")
	}
	var state int
	if err := tx.QueryRowContext(ctx, "SELECT XACT_STATE()").Scan(&state); err != nil || state != 1 {
		return "the server ends the transaction", nil
	}
	return "", nil
}
