package schema_test

import (
	"testing"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/testdb"
)

func TestMigrateLeavesTheTableOfAnotherAlone(t *testing.T) {
	forEachEmpty(t, func(t *testing.T, f *fixture) {
		if f.DB.Name == testdb.SQLServer {
			f.Needs(suite.ErrorNumbers)
		}
		f.Exec("CREATE TABLE {outbox} (number INT)")
		before := f.Names("table")
		err := outbox.Migrate(f.Context(), f.DB.DB, f.MigrateConfig())
		f.ErrorIs(err, outbox.ErrSchema)
		f.ErrorContains(err, "set another Table")
		f.Equal(before, f.Names("table"))
		f.Exec("DROP TABLE {outbox}") // the fixture would read it as an outbox
	})
}
