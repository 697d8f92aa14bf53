package schema_test

import (
	"testing"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/testdb"
)

func TestTheDialectOfAnotherDatabaseIsNamed(t *testing.T) {
	forEachEmpty(t, func(t *testing.T, f *fixture) {
		for _, d := range dialects {
			if d.Name() == f.Config.Dialect.Name() {
				continue
			}
			wrong, err := outbox.New(f.DB.DB, outbox.Config{Dialect: d}, nil)
			f.NoError(err)
			_, err = wrong.Enqueue(f.Context(), f.DB.DB, outbox.Message{Topic: "orders"})
			config := outbox.MigrateConfig{Dialect: d}
			for call, err := range map[string]error{
				"enqueue": err,
				"migrate": outbox.Migrate(f.Context(), f.DB.DB, config),
				"check":   outbox.Check(f.Context(), f.DB.DB, config),
			} {
				f.ErrorContains(err, "the Dialect is that of "+d.Name()+", but the driver is for "+f.Config.Dialect.Name(), call)
				f.NotErrorIs(err, outbox.ErrSchema, call)
			}
		}
	})
}

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
