package schema_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	outbox "github.com/incursa/watermill-outbox"
)

// SQLite opens another file than such a DSN seems to name, or opens it in another way.
func TestTrap_OpenSQLiteRefusesWhatSQLiteReadsInAnotherWay(t *testing.T) {
	const (
		fragment = "outbox: dsn: has a # in its path, at which SQLite ends the name of the file; write %23"
		null     = "outbox: dsn: has a NUL in its path, at which SQLite ends the name of the file"
		plain    = "outbox: dsn: is the name of a file to SQLite, and not a URI; begin it with file: in lower case"
		isOff    = ", with which SQLite goes without WAL or without locks; leave it out"
	)
	for _, test := range []struct{ dsn, want string }{
		{"file:a#b.db?" + settings, fragment},
		{"file:a.db%00b?" + settings, null},
		{"a.db\x00b?" + settings, null},
		{"FILE:a.db?" + settings, plain},
		{" file:a.db?" + settings, plain},
		{"file://a.db?" + settings, `outbox: dsn: names the host "a.db"; a path follows file: at once, or file://`},
		{"file://host/a.db?" + settings, `outbox: dsn: names the host "host"; a path follows file: at once, or file://`},
		{"?" + settings, "outbox: dsn: lacks " + noJournal + "; " + noTimeout + "; " + noLock}, // a file of that name
		{"file:%3Amemory%3A?" + settings, inMemory},
		{"file:?" + settings, inMemory},
		{"file://?" + settings, inMemory},
		{"file://localhost?" + settings, inMemory},
		{"file:a.db?vfs=memdb&" + settings, inMemory},
		{"a.db?vfs=memdb&" + settings, inMemory},
		{"file:a.db?mode=rwc&mode=memory&" + settings, inMemory},
		{"file:a.db?vfs=unix-none&" + settings, "outbox: dsn: has vfs=unix-none" + isOff},
		{"file:a.db?vfs=unix-dotfile&" + settings, "outbox: dsn: has vfs=unix-dotfile" + isOff},
		{"file:a.db?nolock=1&" + settings, "outbox: dsn: has nolock=1" + isOff},
		{"file:a.db?immutable=1&" + settings, "outbox: dsn: has immutable=1" + isOff},
		{"file:a.db?_PRAGMA=journal_mode(WAL)&_Pragma=busy_timeout(10000)&_TXLOCK=immediate",
			"outbox: dsn: lacks " + noJournal + "; " + noTimeout + "; " + noLock},
		{"file:a.db?_txlock=deferred&" + settings, "outbox: dsn: lacks " + noLock}, // the first counts
		{"file:a.db?" + settings + "#a", "outbox: dsn: lacks " + noLock},
		{"file:a.db?_pragma=journal_mode_x&_pragma=busy_timeout(10000)&_txlock=immediate", "outbox: dsn: lacks " + noJournal},
		{"file:a.db?_pragma=journal_mode(WALL)&_pragma=busy_timeout(10000)&_txlock=immediate", "outbox: dsn: lacks " + noJournal},
		{"file:a.db?_pragma=temp.journal_mode(WAL)&_pragma=busy_timeout(10000)&_txlock=immediate", "outbox: dsn: lacks " + noJournal},
		{"file:a.db?_pragma=journal_mode(WAL)&_pragma=busy_timeout&_txlock=immediate", "outbox: dsn: lacks " + noTimeout},
		{"file:a.db?_pragma=journal_mode(WAL)&_pragma=busy_timeout(0)&_txlock=immediate", "outbox: dsn: lacks " + noTimeout},
		{"file:a.db?_pragma=busy_timeout(0)&" + settings, "outbox: dsn: lacks " + noTimeout}, // either may be the last
		{"file:a.db?_busy_timeout=10000&_timeout=&_pragma=journal_mode(WAL)&_txlock=immediate", "outbox: dsn: lacks " + noTimeout},
	} {
		db, err := outbox.OpenSQLite("sqlite", test.dsn)
		if err == nil {
			require.NoError(t, db.Close())
		}
		require.EqualError(t, err, test.want, test.dsn)
	}
}

// Whatever is accepted opens the file that it names, with the three settings.
func TestOpenSQLiteOpensTheFileThatItNames(t *testing.T) {
	for _, test := range []struct{ before, file, dsn string }{
		{"", "a.db", "a.db?" + settings},
		{"", " a.db", " a.db?" + settings},
		{"", "a#b%41%zz.db", "a#b%41%zz.db?" + settings},
		{"file:", "a.db", "a.db?" + settings},
		{"file:", " a.db", " a.db?" + settings},
		{"file:", "a#b%.db", "%61%23b%25.db?" + settings},
		{"file:", "a%zz.db", "a%zz.db?" + settings}, // not an escape
		{"file://", "a.db", "a.db?" + settings},
		{"file://localhost", "a.db", "a.db?" + settings},
		{"file:", "a.db", "a.db?_txlock=IMMEDIATE&_pragma=%20journal_mode%20=%20wal&_pragma=Busy_Timeout=10000"},
		{"file:", "a.db", "a.db?_txlock=exclusive&_pragma=main.journal_mode('WAL')%3B&_pragma=busy_timeout(%2010000%20)"},
		{"file:", "a.db", "a.db?nolock=0&mode=rwc&_txlock=exclusive&_journal=wal&_timeout=10000"},
	} {
		folder := t.TempDir()
		db, err := outbox.OpenSQLite("sqlite", test.before+filepath.ToSlash(folder)+"/"+test.dsn)
		require.NoError(t, err, test.dsn)
		requireSettings(t, db, filepath.Join(folder, test.file))
		require.NoError(t, db.Close())
	}
}

func requireSettings(t *testing.T, db *sql.DB, file string) {
	t.Helper()
	read := func(query string) (value string) {
		require.NoError(t, db.QueryRowContext(t.Context(), query).Scan(&value), file)
		return value
	}
	require.Equal(t, file, read("SELECT file FROM pragma_database_list WHERE name = 'main'"))
	require.Equal(t, "wal", read("PRAGMA journal_mode"), file)
	require.Equal(t, "10000", read("PRAGMA busy_timeout"), file)

	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback()) }()
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	_, err = conn.ExecContext(t.Context(), "PRAGMA busy_timeout = 0")
	require.NoError(t, err)
	_, err = conn.ExecContext(context.WithoutCancel(t.Context()), "BEGIN IMMEDIATE")
	require.True(t, outbox.IsRetryable(err), "%s: %v", file, err)
}
