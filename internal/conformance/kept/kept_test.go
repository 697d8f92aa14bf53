package kept_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"modernc.org/sqlite"

	"github.com/incursa/watermill-outbox/internal/kept"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// one is a connection of a database with a table t of the numbers 1 to 3.
func one(t *testing.T) (*counter, *sql.DB, *sql.Conn, context.Context) {
	t.Helper()
	c := newCounter()
	db := c.openFile(t, 2)
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() }) // a test may have closed it
	_, err = conn.ExecContext(t.Context(), "CREATE TABLE t (n INTEGER PRIMARY KEY); INSERT INTO t VALUES (1), (2), (3)")
	require.NoError(t, err)
	c.reset()
	return c, db, conn, kept.Keep(t.Context())
}

const sum = "SELECT sum(n) FROM t WHERE n <> ?1"

type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func sumOf(ctx context.Context, t *testing.T, x querier, without int) (n int) {
	t.Helper()
	require.NoError(t, x.QueryRowContext(ctx, sum, without).Scan(&n))
	return n
}

func TestAStatementIsCompiledOnceAConnection(t *testing.T) {
	c, db, conn, keep := one(t)
	for range 5 {
		require.Equal(t, 4, sumOf(keep, t, conn, 2))
		require.Equal(t, 5, sumOf(keep, t, db, 1), "the other connection, and other arguments")
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, 3, sumOf(keep, t, tx, 3))
		_, err = tx.ExecContext(keep, "INSERT INTO t VALUES (?1)", 4)
		require.NoError(t, err)
		require.Equal(t, 10, sumOf(keep, t, tx, 0))
		require.NoError(t, tx.Rollback())
	}
	compiled, direct := c.counts()
	require.Equal(t, map[string]int{sum: 1, "INSERT INTO t VALUES (?1)": 1}, compiled)
	require.Empty(t, direct)
}

func TestOthersAreNotKept(t *testing.T) {
	c, db, _, _ := one(t)
	for range 3 {
		require.Equal(t, 4, sumOf(t.Context(), t, db, 2))
	}
	compiled, direct := c.counts()
	require.Empty(t, compiled)
	require.Equal(t, map[string]int{sum: 3}, direct)
	require.Zero(t, c.left())
}

func TestAConnectionKeepsSoManyStatements(t *testing.T) {
	c, _, conn, keep := one(t)
	for i := range 1000 {
		_, err := conn.ExecContext(keep, fmt.Sprintf("SELECT %d", i))
		require.NoError(t, err)
		require.Equal(t, 4, sumOf(keep, t, conn, 2))
	}
	require.LessOrEqual(t, c.mostOpen, 251)
	compiled, _ := c.counts()
	require.LessOrEqual(t, compiled[sum], 5)
}

// Rows of a statement are not disturbed by the same statement on the same connection.
func TestAStatementThatIsBeingReadIsLeftAlone(t *testing.T) {
	c, _, conn, keep := one(t)
	const all = "SELECT n FROM t ORDER BY n"
	rows, err := conn.QueryContext(keep, all)
	require.NoError(t, err)
	var pairs []string
	for rows.Next() {
		var outer int
		require.NoError(t, rows.Scan(&outer))
		within, err := conn.QueryContext(keep, all)
		require.NoError(t, err)
		for within.Next() {
			var inner int
			require.NoError(t, within.Scan(&inner))
			pairs = append(pairs, fmt.Sprint(outer, inner))
		}
		require.NoError(t, within.Err())
		require.NoError(t, within.Close())
	}
	require.NoError(t, rows.Err())
	require.NoError(t, rows.Close())
	require.Equal(t, []string{"1 1", "1 2", "1 3", "2 1", "2 2", "2 3", "3 1", "3 2", "3 3"}, pairs)
	compiled, _ := c.counts()
	require.Equal(t, map[string]int{all: 2}, compiled)
	require.Equal(t, 1, c.left())
}

func TestStatementsOutliveAChangeOfTheSchema(t *testing.T) {
	c, db, conn, keep := one(t)
	require.Equal(t, 6, sumOf(keep, t, conn, 0))
	for _, change := range []string{
		"ALTER TABLE t ADD COLUMN m INTEGER",
		"CREATE INDEX t_m ON t (m)",
		"DROP TABLE t; CREATE TABLE t (before TEXT, n INTEGER); INSERT INTO t VALUES ('', 1), ('', 2), ('', 3)",
	} {
		_, err := db.ExecContext(t.Context(), change) // on the other connection
		require.NoError(t, err)
		require.Equal(t, 6, sumOf(keep, t, conn, 0), change)
	}
	compiled, _ := c.counts()
	require.Equal(t, map[string]int{sum: 1}, compiled, "SQLite has compiled it again by itself")

	// A statement fails while its table is gone, and works again once it is back.
	_, err := db.ExecContext(t.Context(), "ALTER TABLE t RENAME TO away")
	require.NoError(t, err)
	var n int
	require.ErrorContains(t, conn.QueryRowContext(keep, sum, 0).Scan(&n), "no such table")
	require.ErrorContains(t, conn.QueryRowContext(keep, sum, 0).Scan(&n), "no such table")
	_, err = db.ExecContext(t.Context(), "ALTER TABLE away RENAME TO t")
	require.NoError(t, err)
	require.Equal(t, 6, sumOf(keep, t, conn, 0))
}

const insert = "INSERT INTO t VALUES (?1)"

func TestAStatementThatHasFailedWorksAgain(t *testing.T) {
	_, _, conn, keep := one(t)
	for range 3 {
		_, err := conn.ExecContext(keep, insert, 1)
		require.ErrorContains(t, err, "UNIQUE")
		_, err = conn.ExecContext(keep, insert, 9)
		require.NoError(t, err)
		require.Equal(t, 15, sumOf(keep, t, conn, 0))
		_, err = conn.ExecContext(keep, "DELETE FROM t WHERE n = 9")
		require.NoError(t, err)
	}
}

func TestAStatementThatFoundTheDatabaseLockedWorksAgain(t *testing.T) {
	_, db, conn, keep := one(t)
	other, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, other.Close()) }()
	_, err = conn.ExecContext(t.Context(), "PRAGMA busy_timeout = 0")
	require.NoError(t, err)
	run := func(x *sql.Conn, text string, args ...any) error {
		_, err := x.ExecContext(keep, text, args...)
		return err
	}
	for n := 10; n < 13; n++ {
		require.NoError(t, run(other, "BEGIN IMMEDIATE"))
		require.NoError(t, run(other, insert, n))
		require.ErrorContains(t, run(conn, "BEGIN IMMEDIATE"), "locked")
		require.ErrorContains(t, run(conn, insert, n), "locked")
		require.NoError(t, run(other, "ROLLBACK"))
		require.NoError(t, run(conn, "BEGIN IMMEDIATE"))
		require.NoError(t, run(conn, insert, n))
		require.NoError(t, run(conn, "COMMIT"))
	}
	require.Equal(t, 39, sumOf(keep, t, other, 0))
}

// A context may end before a statement, while it runs, and while its rows are read.
func TestAStatementWhoseContextHasEndedWorksAgain(t *testing.T) {
	_, db, conn, keep := one(t)
	require.NoError(t, conn.Close())
	db.SetMaxOpenConns(1)
	const (
		numbers = "WITH RECURSIVE r (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < ?1) SELECT n FROM r"
		count   = "SELECT count(*) FROM (" + numbers + ")"
		forever = int64(1) << 62
	)
	for range 3 {
		ended, cancel := context.WithCancel(keep)
		cancel()
		_, err := db.ExecContext(ended, insert, 9)
		require.ErrorIs(t, err, context.Canceled)

		short, cancel := context.WithTimeout(keep, 20*time.Millisecond)
		var n int
		require.ErrorIs(t, db.QueryRowContext(short, count, forever).Scan(&n), context.DeadlineExceeded)
		_, err = db.ExecContext(short, count, forever)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		cancel()
		require.NoError(t, db.QueryRowContext(keep, count, 10).Scan(&n))
		require.Equal(t, 10, n)

		reading, cancel := context.WithCancel(keep)
		tx, err := db.BeginTx(reading, nil)
		require.NoError(t, err)
		_, err = tx.ExecContext(reading, insert, 9)
		require.NoError(t, err)
		rows, err := tx.QueryContext(reading, numbers, forever)
		require.NoError(t, err)
		require.True(t, rows.Next())
		cancel()
		for rows.Next() {
			continue // until it ends
		}
		require.ErrorIs(t, rows.Err(), context.Canceled)
		require.NoError(t, rows.Close())
		require.Equal(t, 6, sumOf(keep, t, db, 0), "which was rolled back")
	}
}

// Between two uses a statement is in no transaction: it keeps no snapshot open, and no table from being dropped.
func TestAStatementThatIsKeptHoldsNothing(t *testing.T) {
	_, db, conn, keep := one(t)
	for range 2 {
		require.Equal(t, 6, sumOf(keep, t, conn, 0))
		rows, err := conn.QueryContext(keep, "SELECT n FROM t")
		require.NoError(t, err)
		require.True(t, rows.Next())
		require.NoError(t, rows.Err())
		require.NoError(t, rows.Close(), "before the end")
		_, err = conn.ExecContext(keep, "SELECT n FROM t")
		require.NoError(t, err)
		_, err = db.ExecContext(keep, insert, 4)
		require.NoError(t, err)
		_, err = db.ExecContext(keep, "DELETE FROM t WHERE n = 4")
		require.NoError(t, err)
		var busy, frames, moved int
		require.NoError(t, db.QueryRowContext(t.Context(), "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &frames, &moved))
		require.Zero(t, busy)
	}
	for _, x := range []interface {
		ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	}{db, conn} {
		_, err := x.ExecContext(t.Context(), "VACUUM; DROP TABLE t; CREATE TABLE t (n INTEGER)")
		require.NoError(t, err)
	}
}

// A connection that leaves the pool closes its statements, or SQLite would hold on to the file.
func TestStatementsEndWithTheirConnection(t *testing.T) {
	c, db, conn, keep := one(t)
	require.Equal(t, 6, sumOf(keep, t, conn, 0))
	require.Equal(t, 1, c.left())
	require.ErrorIs(t, conn.Raw(func(any) error { return driver.ErrBadConn }), driver.ErrBadConn)
	require.Zero(t, c.left())
	require.Equal(t, 6, sumOf(keep, t, db, 0))
	require.Equal(t, 1, c.left())
	db.SetMaxIdleConns(-1)
	require.Zero(t, c.left())

	rows, err := db.QueryContext(keep, "SELECT n FROM t")
	require.NoError(t, err)
	require.True(t, rows.Next())
	require.NoError(t, rows.Err())
	require.NoError(t, db.Close())
	require.NoError(t, rows.Close())
	require.Zero(t, c.left())
}

// Kept means by the driver too, which compiles a text at every use that has anything behind its statement.
func TestOpen(t *testing.T) {
	db, err := kept.Open("sqlite", "file:"+filepath.ToSlash(filepath.Join(t.TempDir(), "open.db")))
	require.NoError(t, err)
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	used := func() (bytes int) {
		require.NoError(t, conn.Raw(func(dc any) error {
			below := dc.(interface{ Unwrap() driver.Conn }).Unwrap().(sqlite.DBStatus) //nolint:errcheck // a panic says so
			bytes, _, err = below.Status(sqlite.DBStatusStmtUsed, false)
			return err
		}))
		return bytes
	}
	_, err = conn.ExecContext(t.Context(), "SELECT 1")
	require.NoError(t, err)
	require.Zero(t, used())
	_, err = conn.ExecContext(kept.Keep(t.Context()), "SELECT 1")
	require.NoError(t, err)
	require.Positive(t, used())
	require.NoError(t, conn.Close())
	require.NoError(t, db.Close())

	_, err = kept.Open("no such driver", "")
	require.ErrorContains(t, err, "unknown driver")
}
