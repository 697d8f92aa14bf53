package schema_test

import (
	"fmt"
	"testing"

	"github.com/ThreeDotsLabs/watermill"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/testdb"
)

// Less durability is a choice: Check names it, and does not fail.
func TestCheckTellsOfCommitsThatMayBeLost(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Needs(suite.Level130)           // or Check returns an error
		settings := map[string][2]string{ // as the default is, and less
			testdb.Postgres: {"SET synchronous_commit = on", "SET synchronous_commit = off"},
			testdb.SQLite:   {"PRAGMA synchronous = FULL", "PRAGMA synchronous = NORMAL"},
		}[f.DB.Name]
		told := func(setting string) string {
			db := f.DB.Reopen(t)
			db.SetMaxOpenConns(1) // the one that has the setting
			if setting != "" {
				_, err := db.ExecContext(f.Context(), setting)
				f.NoError(err)
			}
			logger := watermill.NewCaptureLogger()
			config := f.MigrateConfig()
			config.Logger = logger
			f.NoError(outbox.Check(f.Context(), db.DB, config))
			f.NoError(db.Close())
			return fmt.Sprint(logger.Captured()[watermill.InfoLogLevel])
		}
		f.NotContains(told(settings[0]), "a commit returns before it is written")
		if f.DB.Name != testdb.SQLServer { // there it is a setting of the database, which other tests share
			f.Contains(told(settings[1]), "a commit returns before it is written")
		}
	})
}
