package schema_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/faults"
	"github.com/incursa/watermill-outbox/internal/testdb"
)

func TestOBX102_MigrateCreatesTablesAndProcedures(t *testing.T) {
	forEachEmpty(t, func(t *testing.T, f *fixture) {
		f.Empty(f.Names("table"))
		f.Migrate()
		table := f.Config.Dialect.Traits().Table
		f.Contains(suite.Lower(f.Names("table")), strings.ToLower(table)) // not every catalog keeps the case
		views := 2
		if f.DB.Name == testdb.SQLite {
			views = 4 // one to publish into, and one to free streams
		}
		f.Len(f.Names("view"), views)
		if !f.Config.Dialect.Traits().Procedures {
			return
		}
		for _, operation := range []string{"Log_Stamp", "Claim", "Settle", "Renew", "Reap", "Requeue", "Purge", "Topics", "Get"} {
			f.Contains(suite.Lower(f.Names("procedure")), strings.ToLower(table+"_"+operation))
		}
	})
}

func TestOBX102_MigrateCreatesIndexes(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Needs(suite.IndexNames)
		want := []string{"outbox_ready", "outbox_leased", "outbox_dead"}
		if f.DB.Name == testdb.SQLServer {
			want = []string{"IX_Outbox_State_Ready", "IX_Outbox_Lease_LockedUntil", "IX_Outbox_State_Dead"}
		}
		f.Subset(f.Names("index"), want)
	})
}

func TestOBX102_MigrateCreatesTheSchema(t *testing.T) {
	forEachEmpty(t, func(t *testing.T, f *fixture) {
		if f.Config.Dialect.Traits().FixedSchema {
			f.Skip("schemas", "there are none to choose")
		}
		f.InSchema(f.Config.Schema + "_more")
		f.Migrate()
		f.Migrate()
		f.ClaimOne("orders")
	})
}

func TestOBX103_NothingIsCreatedUnlessAskedFor(t *testing.T) {
	forEachEmpty(t, func(t *testing.T, f *fixture) {
		p := f.Publisher(f.DB.DB)
		f.NoError(p.Close())
		calls := map[string]func() error{
			"enqueue": func() error {
				_, err := f.Outbox.Enqueue(f.Context(), f.DB.DB, outbox.Message{Topic: "orders"})
				return err
			},
			"claim": func() error {
				_, err := f.Outbox.Claim(f.Context(), outbox.ClaimParams{Topics: suite.Quotas("orders")})
				return err
			},
			"settle": func() error {
				_, err := f.Outbox.Settle(f.Context(), f.DB.DB, []outbox.Settlement{{Receipt: outbox.Receipt{Seq: 1}}})
				return err
			},
			"reap":  func() error { _, err := f.Outbox.ReapExpired(f.Context()); return err },
			"purge": func() error { _, err := f.Outbox.Purge(f.Context(), outbox.PurgeParams{}); return err },
			"check": func() error { return outbox.Check(f.Context(), f.DB.DB, f.MigrateConfig()) },
		}
		for name, call := range calls {
			f.Error(call(), name)
		}
		f.Empty(f.Names("table"))
	})
}

func TestOBX103_WithoutTheSchemaACallSaysWhatToDo(t *testing.T) {
	forEachEmpty(t, func(t *testing.T, f *fixture) {
		if f.DB.Name == testdb.SQLServer {
			f.Needs(suite.ErrorNumbers)
		}
		_, err := f.Outbox.Enqueue(f.Context(), f.DB.DB, outbox.Message{Topic: "orders"})
		f.ErrorIs(err, outbox.ErrSchema)
		_, err = f.Outbox.Claim(f.Context(), outbox.ClaimParams{Topics: suite.Quotas("orders")})
		f.ErrorIs(err, outbox.ErrSchema)
		f.ErrorContains(err, f.Object(f.Config.Dialect.Traits().Table), "it names the object")

		// An older table, without a column that came later.
		f.Migrate()
		f.EnqueueN("orders", 1)
		view := "outbox_view"
		if f.DB.Name == testdb.SQLServer {
			view = "Outbox_View"
		}
		f.Exec("DROP VIEW %s", f.Object(view))
		if f.DB.Name == testdb.SQLite {
			f.Exec("DROP VIEW outbox_queued")
		}
		f.Exec("ALTER TABLE {outbox} DROP COLUMN {stream_key}")
		_, err = f.Outbox.Enqueue(f.Context(), f.DB.DB, outbox.Message{Topic: "orders"})
		f.ErrorIs(err, outbox.ErrSchema)
		_, err = f.Outbox.Claim(f.Context(), outbox.ClaimParams{Topics: suite.Quotas("orders")})
		f.ErrorIs(err, outbox.ErrSchema)
	})
}

func TestOBX103_CheckNamesWhatIsMissing(t *testing.T) {
	forEachEmpty(t, func(t *testing.T, f *fixture) {
		f.Needs(suite.ErrorNumbers)
		check := func() error { return outbox.Check(f.Context(), f.DB.DB, f.MigrateConfig()) }
		err := check()
		f.ErrorIs(err, outbox.ErrSchema)
		f.ErrorContains(err, f.Config.Dialect.Traits().Table)
		f.Migrate()
		if f.DB.Name == testdb.SQLServer {
			f.Needs(suite.IndexNames, suite.Level130)
		}
		f.NoError(check())

		index, drop := "outbox_ready", "DROP INDEX "+f.Config.Dialect.Quote(f.Schema())+".outbox_ready"
		if f.DB.Name == testdb.SQLServer {
			index, drop = "IX_Outbox_State_Ready", "DROP INDEX IX_Outbox_State_Ready ON {outbox_state}"
		}
		f.Exec("%s", f.SQL("%s", drop))
		err = check()
		f.ErrorIs(err, outbox.ErrSchema)
		f.ErrorContains(err, index)
		f.ErrorIs(outbox.Check(f.Context(), nil, f.MigrateConfig()), base.ErrNilDB)
	})
}

func TestOBX103_CheckNamesWhatIsOlder(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		history := f.Object(f.Config.Dialect.Traits().Table + "_migrations")
		if f.DB.Name == testdb.SQLServer {
			history = f.Object("Outbox_Migrations")
		}
		f.Exec("DELETE FROM %s WHERE %s = 1", history, f.Column("version"))
		err := outbox.Check(f.Context(), f.DB.DB, f.MigrateConfig())
		f.ErrorIs(err, outbox.ErrSchema)
		f.ErrorContains(err, "0001")
		f.Migrate() // and mends it: each migration is idempotent by itself
		f.Exec("UPDATE %s SET %s = 'older' WHERE %s = 0", history, f.Column("checksum"), f.Column("version"))
		f.ErrorIs(outbox.Check(f.Context(), f.DB.DB, f.MigrateConfig()), outbox.ErrSchema)
		f.Migrate()
	})
}

func TestOBX104_MigratingAgainChangesNothing(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.ClaimOne("orders")
		before := f.Catalog()
		for range 2 {
			f.Migrate()
		}
		f.SameCatalog(before, f.Catalog())
		f.Equal(int(outbox.InProgress), f.Row(c.ID).Status, "the messages stay")
		f.Equal([]outbox.WorkItemID(nil), f.Settle(suite.Settled(outbox.Ack, c)...))

		// It does not even try to create what is there.
		log := &faults.Log{}
		f.NoError(outbox.Migrate(f.Context(), faults.Open(t, f.DB, log.Hooks()), f.MigrateConfig()))
		for _, s := range log.Take() {
			f.NotContains(s.Text, "CREATE INDEX")
			f.NotContains(s.Text, "REPLACE FUNCTION")
			f.NotContains(s.Text, "ALTER PROCEDURE")
		}
	})
}

func TestTrap_TwoMigrationsAtOnce(t *testing.T) {
	forEachEmpty(t, func(t *testing.T, f *fixture) {
		const migrators = 4
		start := make(chan struct{})
		failures := make([]error, migrators)
		var group sync.WaitGroup
		for i := range migrators {
			pool := f.DB.Reopen(t) // as another process would
			group.Go(func() {
				<-start
				failures[i] = outbox.Migrate(f.Context(), pool.DB, f.MigrateConfig())
			})
		}
		close(start)
		group.Wait()
		for _, err := range failures {
			f.NoError(err)
		}
		f.ClaimOne("orders")
		before := f.Catalog()
		f.Migrate()
		f.SameCatalog(before, f.Catalog())
	})
}

func TestTrap_AMigrationThatFailsLeavesNothing(t *testing.T) {
	forEachEmpty(t, func(t *testing.T, f *fixture) {
		for _, at := range []string{"CREATE INDEX", "CREATE OR REPLACE FUNCTION"} {
			if at == "CREATE OR REPLACE FUNCTION" && !f.Config.Dialect.Traits().Procedures {
				continue
			}
			if f.DB.Name == testdb.SQLServer && at == "CREATE OR REPLACE FUNCTION" {
				at = "ALTER PROCEDURE"
			}
			pool := faults.Open(t, f.DB, faults.Hooks{Before: func(_ context.Context, s faults.Statement) error {
				if strings.Contains(s.Text, at) {
					return &faults.Error{Number: 50000, State: "XX000", Result: 10}
				}
				return nil
			}})
			f.Error(outbox.Migrate(f.Context(), pool, f.MigrateConfig()))
			f.Empty(f.Names("table"), "stopped at %s", at)
		}
		f.Migrate()
	})
}

// The script is what Migrate does: on a fresh schema both leave the same.
func TestTrap_ThePrintedScriptEqualsMigrate(t *testing.T) {
	forEachEmpty(t, func(t *testing.T, f *fixture) {
		printed, err := outbox.MigrationSQL(f.MigrateConfig())
		f.NoError(err)
		f.NoError(f.Run(printed))
		byScript := f.Catalog()
		f.ClaimOne("orders")
		f.NoError(f.Run(printed), "it is idempotent")
		f.SameCatalog(byScript, f.Catalog())
		f.Equal(1, f.Count())

		// Migrate finds all of it done.
		log := &faults.Log{}
		f.NoError(outbox.Migrate(f.Context(), faults.Open(t, f.DB, log.Hooks()), f.MigrateConfig()))
		for _, s := range log.Take() {
			f.NotContains(s.Text, "0001")
			f.NotContains(s.Text, "CREATE INDEX")
			f.NotContains(s.Text, "REPLACE FUNCTION")
			f.NotContains(s.Text, "ALTER PROCEDURE")
		}
		f.SameCatalog(byScript, f.Catalog())

		other := f.On(f.Another())
		other.Migrate()
		f.SameCatalog(byScript, other.Catalog())
	})
}
