package schema_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/kept"
	"github.com/incursa/watermill-outbox/internal/testdb"
)

// Where nothing is installed, each missing object is not worth a line.
func TestTrap_CheckSaysInALineThatNothingIsInstalled(t *testing.T) {
	forEachEmpty(t, func(t *testing.T, f *fixture) {
		f.Needs(suite.ErrorNumbers)
		config := f.MigrateConfig()
		err := outbox.Check(f.Context(), f.DB.DB, config)
		f.ErrorIs(err, outbox.ErrSchema)
		f.EqualError(err, f.Object(f.Config.Dialect.Traits().Table)+": nothing is installed under this name; run outbox.Migrate, or check Schema and Table")

		f.Migrate()
		f.NoError(outbox.Check(f.Context(), f.DB.DB, config))
		config.Table = "Another"
		f.ErrorContains(outbox.Check(f.Context(), f.DB.DB, config), "nothing is installed under this name")
	})
}

// Migrating changes no setting.
func TestTrap_CheckDoesNotSendForMigrateBecauseOfASetting(t *testing.T) {
	file := "file:" + filepath.ToSlash(filepath.Join(t.TempDir(), "shop.db"))
	config := outbox.MigrateConfig{Dialect: outbox.SQLite{}}
	check := func(settings string, migrate bool) error {
		db, err := kept.Open("sqlite", file+settings)
		require.NoError(t, err)
		defer func() { require.NoError(t, db.Close()) }()
		if migrate {
			require.NoError(t, outbox.Migrate(context.Background(), db, config))
		}
		return outbox.Check(context.Background(), db, config)
	}
	const timeout = "busy_timeout is 0: open the database with _pragma=busy_timeout(10000), or writers fail instead of waiting"
	err := check("", true)
	require.ErrorIs(t, err, outbox.ErrSchema)
	lines := strings.Split(err.Error(), "\n")
	require.Len(t, lines, 3)
	require.Equal(t, `"main"."outbox": settings do not fit:`, lines[0])
	require.Contains(t, lines[1], "journal_mode is delete")
	require.Equal(t, timeout, lines[2])

	require.EqualError(t, check("?_pragma=journal_mode(WAL)", false), `"main"."outbox": settings do not fit: `+timeout)
	require.NoError(t, check("?_pragma=busy_timeout(10000)", false), "the file remembers WAL")
}

// Numbers that a connection keeps are given out of order, and with them the order of the log and of streams is lost.
func TestTrap_CheckRefusesCachedNumbers(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		if f.DB.Name != testdb.Postgres {
			return
		}
		f.Exec("ALTER TABLE %s ALTER arrival_id SET CACHE 20", f.Object("outbox_arrival"))
		err := outbox.Check(f.Context(), f.DB.DB, f.MigrateConfig())
		f.ErrorIs(err, outbox.ErrSchema)
		f.ErrorContains(err, "are cached by each connection")
	})
}
