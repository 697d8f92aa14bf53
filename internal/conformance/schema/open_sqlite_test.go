package schema_test

import (
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	outbox "github.com/incursa/watermill-outbox"
)

const (
	settings  = "_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)&_txlock=immediate"
	inMemory  = "outbox: dsn: is of a database in memory, of which each connection of the pool has its own, or else locks the others out; use a file, such as one in t.TempDir()"
	noJournal = "_pragma=journal_mode(WAL), without which readers and the writer block each other"
	noTimeout = "_pragma=busy_timeout(10000), without which a second writer fails at once instead of waiting"
	noLock    = "_txlock=immediate, without which a transaction that reads before it writes may fail, whatever the timeout"
)

func TestTrap_OpenSQLiteRefusesWhatWouldFailLater(t *testing.T) {
	for _, test := range []struct{ driver, dsn, want string }{
		{"sqlite", ":memory:?" + settings, inMemory},
		{"sqlite", ":memory:", inMemory},
		{"sqlite", "", inMemory},
		{"sqlite", "file::memory:?cache=shared&" + settings, inMemory},
		{"sqlite", "file:shop?mode=memory&cache=shared&" + settings, inMemory},
		{"sqlite", "shop.db", "outbox: dsn: lacks " + noJournal + "; " + noTimeout + "; " + noLock},
		{"sqlite", "file:shop.db?_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)", "outbox: dsn: lacks " + noLock},
		{"sqlite", "file:shop.db?_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)&_txlock=deferred", "outbox: dsn: lacks " + noLock},
		{"sqlite", "file:shop.db?_pragma=journal_mode(WAL)&_txlock=immediate", "outbox: dsn: lacks " + noTimeout},
		{"sqlite", "file:shop.db?_pragma=busy_timeout(10000)&_txlock=immediate", "outbox: dsn: lacks " + noJournal},
		{"sqlite", "file:shop.db?%zz", `outbox: dsn: has parameters that cannot be read: invalid URL escape "%zz"`},
		{"pgx", "file:shop.db?" + settings, "outbox: driverName: is a driver for postgres; OpenSQLite is for SQLite, and sql.Open for all others"},
	} {
		db, err := outbox.OpenSQLite(test.driver, test.dsn)
		require.EqualError(t, err, test.want, test.dsn)
		require.Nil(t, db)
	}
	for _, dsn := range []string{
		"shop.db?" + settings,
		"file:shop.db?" + settings,
		"file:shop.db?_pragma=BUSY_TIMEOUT=5&_pragma=journal_mode&_txlock=exclusive",
		"file:shop.db?_journal_mode=WAL&_busy_timeout=10000&_txlock=immediate", // of another driver
	} {
		db, err := outbox.OpenSQLite("sqlite", dsn)
		require.NoError(t, err, dsn)
		require.NoError(t, db.Close())
	}
}

// A DSN may leave the journal's mode to the file.
func TestOpenSQLiteLeavesTheModeThatTheFileHas(t *testing.T) {
	file := "file:" + filepath.ToSlash(filepath.Join(t.TempDir(), "shop.db"))
	mode := func(db *sql.DB, err error) (mode string) {
		require.NoError(t, err)
		defer func() { require.NoError(t, db.Close()) }()
		require.NoError(t, db.QueryRowContext(t.Context(), "PRAGMA journal_mode").Scan(&mode))
		return mode
	}
	const asItIs = "?_pragma=journal_mode&_pragma=busy_timeout(10000)&_txlock=immediate"
	require.Equal(t, "delete", mode(outbox.OpenSQLite("sqlite", file+asItIs)))
	require.Equal(t, "wal", mode(outbox.OpenSQLite("sqlite", file+"?"+settings)))
	require.Equal(t, "wal", mode(outbox.OpenSQLite("sqlite", file+asItIs)))
}
