package suite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
)

// The capabilities that tests ask for.
var (
	// Procedures in the database itself, which others than the library can call.
	Procedures = &Capability{"stored procedures", func(_ context.Context, db *testdb.DB) (string, error) {
		if !testoutbox.Dialect(db.Name).Traits().Procedures {
			return "an operation is a few statements in one transaction, there are no procedures", nil
		}
		return "", nil
	}}

	// ConcurrentWriters: two transactions can have uncommitted rows at the same time.
	ConcurrentWriters = &Capability{"several writers at a time", func(ctx context.Context, db *testdb.DB) (string, error) {
		return WithProbe(ctx, db, func(probe string, holder, other *sql.Conn) (string, error) {
			return ProbeWhileLocked(ctx, db, holder, "UPDATE "+probe+" SET n = 1 WHERE id = 1", func(ctx context.Context) (string, error) {
				_, err := other.ExecContext(ctx, "UPDATE "+probe+" SET n = 1 WHERE id = 2")
				return lacking(err, "one transaction writes, the others wait for it"), nil
			})
		})
	}}

	// SkipLocked: a claim passes over rows that somebody has locked, and does not wait for them.
	SkipLocked = &Capability{"row locks that others skip", func(ctx context.Context, db *testdb.DB) (string, error) {
		lock, read := "SELECT id FROM %s WHERE id = 1 FOR UPDATE", "SELECT COUNT(*) FROM (SELECT id FROM %s FOR UPDATE SKIP LOCKED) AS s"
		switch db.Name {
		case testdb.SQLite:
			return "the database has one lock, for all of it", nil
		case testdb.SQLServer:
			lock, read = "SELECT id FROM %s WITH (UPDLOCK, ROWLOCK) WHERE id = 1", "SELECT COUNT(*) FROM %s WITH (UPDLOCK, READPAST, ROWLOCK)"
		}
		return WithProbe(ctx, db, func(probe string, holder, other *sql.Conn) (string, error) {
			return ProbeWhileLocked(ctx, db, holder, fmt.Sprintf(lock, probe), func(ctx context.Context) (string, error) {
				var n int
				err := other.QueryRowContext(ctx, fmt.Sprintf(read, probe)).Scan(&n)
				if err == nil && n != 1 {
					return fmt.Sprintf("of 2 rows, 1 of them locked, a reader that skips locked rows sees %d", n), nil
				}
				return lacking(err, "a reader that skips locked rows waits for them"), nil
			})
		})
	}}

	// UpdatesSkipLocked: an UPDATE of a joined table passes over rows that somebody has locked, as renewing leases does.
	UpdatesSkipLocked = &Capability{"updates that skip locked rows", func(ctx context.Context, db *testdb.DB) (string, error) {
		if db.Name != testdb.SQLServer {
			return "", nil
		}
		return WithProbe(ctx, db, func(probe string, holder, other *sql.Conn) (string, error) {
			return ProbeWhileLocked(ctx, db, holder, "UPDATE "+probe+" SET n = 1 WHERE id = 1", func(ctx context.Context) (string, error) {
				var n int
				err := other.QueryRowContext(ctx, fmt.Sprintf(`SET XACT_ABORT ON;
					DECLARE @Wanted TABLE (id INT NOT NULL PRIMARY KEY), @Updated TABLE (id INT NOT NULL PRIMARY KEY);
					INSERT INTO @Wanted (id) SELECT id FROM %[1]s WITH (NOLOCK);
					UPDATE p SET n = 2 OUTPUT inserted.id INTO @Updated (id)
					FROM %[1]s AS p WITH (ROWLOCK, READPAST, FORCESEEK) INNER JOIN @Wanted AS w ON p.id = w.id;
					SELECT COUNT(*) FROM @Updated`, probe)).Scan(&n)
				if err == nil && n != 1 {
					return fmt.Sprintf("of 2 rows, 1 of them locked, an update that skips locked rows takes %d", n), nil
				}
				return lacking(err, "an update that skips locked rows waits for them"), nil
			})
		})
	}}

	// ReadsCommitted: a read in a transaction with a snapshot of the past can be had of what is committed now.
	ReadsCommitted = &Capability{"reads of what is committed, in a transaction with a snapshot", func(ctx context.Context, db *testdb.DB) (string, error) {
		if db.Name != testdb.SQLServer {
			return "", nil
		}
		return WithProbe(ctx, db, func(probe string, one, two *sql.Conn) (string, error) {
			tx, err := one.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
			if err != nil {
				return "", err
			}
			defer func() { _ = tx.Rollback() }() // it has only read
			var n int
			if err := tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+probe).Scan(&n); err != nil {
				return "", err
			}
			if _, err := two.ExecContext(ctx, "INSERT INTO "+probe+" (id, n) VALUES (3, 0)"); err != nil {
				return "", err
			}
			err = tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+probe+" WITH (READCOMMITTEDLOCK)").Scan(&n)
			if err == nil && n != 3 {
				return "READCOMMITTEDLOCK does not see a row that has been committed", nil
			}
			return "", err
		})
	}}

	// CancelsWaiting: a statement that waits for a lock ends when its context does.
	CancelsWaiting = &Capability{"cancellation of a statement that waits for a lock", func(ctx context.Context, db *testdb.DB) (string, error) {
		return withPatientProbe(ctx, db, func(probe string, holder, other *sql.Conn) (string, error) {
			update := "UPDATE " + probe + " SET n = n + 1 WHERE id = 1"
			return ProbeWhileLocked(ctx, db, holder, update, func(ctx context.Context) (string, error) {
				short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
				defer cancel()
				_, err := other.ExecContext(short, update)
				if err == nil {
					return "a statement whose context had ended waited, and ran", nil
				}
				return "", nil
			})
		})
	}}

	// UsableAfterError: a transaction goes on after a statement of it has failed.
	UsableAfterError = &Capability{"a transaction that outlives a failed statement", func(ctx context.Context, db *testdb.DB) (lacks string, err error) {
		return WithProbe(ctx, db, func(probe string, conn, _ *sql.Conn) (string, error) {
			tx, err := conn.BeginTx(ctx, nil)
			if err != nil {
				return "", err
			}
			_, failed := tx.ExecContext(ctx, "INSERT INTO "+probe+" (id, n) VALUES (1, 0)")
			_, next := tx.ExecContext(ctx, "INSERT INTO "+probe+" (id, n) VALUES (3, 0)")
			if err := tx.Rollback(); err != nil {
				return "", err
			}
			if failed == nil {
				return "", errors.New("a duplicate key was not refused")
			}
			return lacking(next, "it ends the transaction; the caller needs a savepoint"), nil
		})
	}}

	// UnescapesJSON: strings come out of JSON as they went in.
	UnescapesJSON = &Capability{"JSON strings that are unescaped", func(ctx context.Context, db *testdb.DB) (string, error) {
		return ProbeValue(ctx, db, map[string]string{
			testdb.SQLite:    `SELECT '{"a":"x\"y"}' ->> '$.a'`,
			testdb.Postgres:  `SELECT '{"a":"x\"y"}'::json ->> 'a'`,
			testdb.SQLServer: `SELECT JSON_VALUE(N'{"a":"x\"y"}', '$.a')`,
		}, `x"y`)
	}}

	// LongJSONTexts: a text of 4,000 characters comes out of JSON, the most that SQL Server's JSON_VALUE promises.
	LongJSONTexts = &Capability{"JSON strings of 4,000 characters", func(ctx context.Context, db *testdb.DB) (string, error) {
		if db.Name != testdb.SQLServer {
			return "", nil
		}
		var n sql.NullInt64
		err := db.QueryRowContext(ctx, `DECLARE @Json NVARCHAR(MAX) = N'{"a":"' + REPLICATE(CAST(N'x' AS NVARCHAR(MAX)), 4000) + N'"}';
			SELECT LEN(JSON_VALUE(@Json, '$.a'))`).Scan(&n)
		if err == nil && n.Int64 != 4000 {
			return "JSON_VALUE of 4,000 characters answers NULL", nil
		}
		return "", err
	}}

	// LongerJSONTexts: and of more, by OPENJSON.
	LongerJSONTexts = &Capability{"JSON strings of any length", func(ctx context.Context, db *testdb.DB) (string, error) {
		if db.Name != testdb.SQLServer {
			return "", nil
		}
		var n sql.NullInt64
		err := db.QueryRowContext(ctx, `DECLARE @Json NVARCHAR(MAX) = N'{"a":"' + REPLICATE(CAST(N'x' AS NVARCHAR(MAX)), 9000) + N'"}';
			SELECT LEN(a) FROM OPENJSON(@Json) WITH (a NVARCHAR(MAX) '$.a')`).Scan(&n)
		if err == nil && n.Int64 != 9000 {
			return fmt.Sprintf("OPENJSON makes %d characters of 9,000", n.Int64), nil
		}
		return lacking(err, "OPENJSON refuses 9,000 characters"), nil
	}}

	// SurvivesThrow: a transaction goes on after a procedure has rolled back to its savepoint and thrown.
	SurvivesThrow = &Capability{"a transaction that outlives an error thrown by a procedure", func(ctx context.Context, db *testdb.DB) (string, error) {
		if db.Name != testdb.SQLServer {
			return UsableAfterError.probe(ctx, db)
		}
		return WithProbe(ctx, db, probeThrow)
	}}

	// ErrorNumbers: errors carry the numbers that the documentation of the database gives them.
	ErrorNumbers = &Capability{"the documented number of a missing table", func(ctx context.Context, db *testdb.DB) (string, error) {
		_, err := db.ExecContext(ctx, "SELECT 1 FROM no_such_table_anywhere")
		if err == nil {
			return "", errors.New("a missing table was found")
		}
		var numbered interface{ SQLErrorNumber() int32 }
		if errors.As(err, &numbered) && numbered.SQLErrorNumber() != 208 {
			return fmt.Sprintf("it is %d and not 208", numbered.SQLErrorNumber()), nil
		}
		return "", nil
	}}

	// OrdersUUIDs: SQL Server compares the last six bytes of a uuid first.
	OrdersUUIDs = &Capability{"the database's own order of uuids", func(ctx context.Context, db *testdb.DB) (string, error) {
		if db.Name != testdb.SQLServer {
			return "", nil
		}
		return ProbeValue(ctx, db, map[string]string{testdb.SQLServer: "SELECT CASE WHEN " +
			"CAST('00000000-0000-0000-0000-000000000001' AS UNIQUEIDENTIFIER) > CAST('ffffffff-0000-0000-0000-000000000000' AS UNIQUEIDENTIFIER) " +
			"THEN 'last bytes first' ELSE 'first bytes first' END"}, "last bytes first")
	}}

	// ProcedureReads: the server counts what a procedure has read.
	ProcedureReads = &Capability{"counts of what a procedure has read", func(ctx context.Context, db *testdb.DB) (string, error) {
		var n int
		err := db.QueryRowContext(ctx, "SELECT COUNT(*) FROM sys.dm_exec_procedure_stats").Scan(&n)
		return lacking(err, "sys.dm_exec_procedure_stats cannot be read"), nil
	}}

	// LongNames: identifiers up to the documented length are kept as they are.
	LongNames = &Capability{"identifiers of the documented length", func(ctx context.Context, db *testdb.DB) (string, error) {
		return probeLongName(ctx, db)
	}}

	// IndexNames: the catalog has the names that indexes were created with.
	IndexNames = &Capability{"index names in the catalog as they were given", func(ctx context.Context, db *testdb.DB) (string, error) {
		if db.Name != testdb.SQLServer {
			return "", nil
		}
		return WithProbe(ctx, db, func(probe string, conn, _ *sql.Conn) (string, error) {
			if _, err := conn.ExecContext(ctx, "CREATE INDEX [IX_probe_Named] ON "+probe+" (n)"); err != nil {
				return "", err
			}
			var n int
			err := conn.QueryRowContext(ctx, "SELECT COUNT(*) FROM sys.indexes WHERE name = 'IX_probe_Named'").Scan(&n)
			if n == 0 {
				return "an index is not found by its name", err
			}
			return "", err
		})
	}}

	// Level130: Check refuses a database whose compatibility level is lower.
	Level130 = &Capability{"compatibility level 130", func(ctx context.Context, db *testdb.DB) (string, error) {
		if db.Name != testdb.SQLServer {
			return "", nil
		}
		var level int
		if err := db.QueryRowContext(ctx, "SELECT compatibility_level FROM sys.databases WHERE name = DB_NAME()").Scan(&level); err != nil {
			return "", err
		}
		if level < 130 {
			return fmt.Sprintf("the database has level %d", level), nil
		}
		return "", nil
	}}

	// ExecuteAs: a connection can take on a user without a login of its own.
	ExecuteAs = &Capability{"users without login, to act as", func(ctx context.Context, db *testdb.DB) (string, error) {
		if db.Name == testdb.SQLite {
			return "there are no users", nil
		}
		return probeUser(ctx, db)
	}}
)
