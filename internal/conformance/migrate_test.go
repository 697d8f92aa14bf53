package conformance

import (
	"context"
	"strings"
	"sync"
	"testing"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/faults"
	"github.com/incursa/watermill-outbox/internal/testdb"
)

func TestOBX102_MigrateCreatesTablesAndProcedures(t *testing.T) {
	forEachEmpty(t, func(t *testing.T, f *fixture) {
		f.Empty(f.names("table"))
		f.migrate()
		table := f.config.Dialect.Traits().Table
		f.Contains(lower(f.names("table")), strings.ToLower(table)) // not every catalog keeps the case
		views := 2
		if f.db.Name == testdb.SQLite {
			views = 4 // one to publish into, and one to free streams
		}
		f.Len(f.names("view"), views)
		if !f.config.Dialect.Traits().Procedures {
			return
		}
		for _, operation := range []string{"Log_Enqueue", "Claim", "Settle", "Renew", "Reap", "Requeue", "Purge", "Topics", "Get"} {
			f.Contains(lower(f.names("procedure")), strings.ToLower(table+"_"+operation))
		}
	})
}

func lower(names []string) []string {
	return strings.Fields(strings.ToLower(strings.Join(names, " ")))
}

func TestOBX102_MigrateCreatesIndexes(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.needs(indexNames)
		want := []string{"outbox_ready", "outbox_leased", "outbox_dead"}
		if f.db.Name == testdb.SQLServer {
			want = []string{"IX_Outbox_State_Ready", "IX_Outbox_Lease_LockedUntil", "IX_Outbox_State_Dead"}
		}
		f.Subset(f.names("index"), want)
	})
}

func TestOBX102_MigrateCreatesTheSchema(t *testing.T) {
	forEachEmpty(t, func(t *testing.T, f *fixture) {
		if f.config.Dialect.Traits().FixedSchema {
			f.skip("schemas", "there are none to choose")
		}
		f.inSchema(f.config.Schema + "_more")
		f.migrate()
		f.migrate()
		f.claimOne("orders")
	})
}

func TestOBX103_NothingIsCreatedUnlessAskedFor(t *testing.T) {
	forEachEmpty(t, func(t *testing.T, f *fixture) {
		p := f.publisher(f.db.DB)
		f.NoError(p.Close())
		calls := map[string]func() error{
			"enqueue": func() error {
				_, err := f.outbox.Enqueue(f.ctx(), f.db.DB, outbox.Message{Topic: "orders"})
				return err
			},
			"claim": func() error {
				_, err := f.outbox.Claim(f.ctx(), outbox.ClaimParams{Topics: quotas("orders")})
				return err
			},
			"settle": func() error {
				_, err := f.outbox.Settle(f.ctx(), f.db.DB, []outbox.Settlement{{Receipt: outbox.Receipt{Seq: 1}}})
				return err
			},
			"reap":  func() error { _, err := f.outbox.ReapExpired(f.ctx()); return err },
			"purge": func() error { _, err := f.outbox.Purge(f.ctx(), outbox.PurgeParams{}); return err },
			"check": func() error { return outbox.Check(f.ctx(), f.db.DB, f.migrateConfig()) },
		}
		for name, call := range calls {
			f.Error(call(), name)
		}
		f.Empty(f.names("table"))
	})
}

func TestOBX103_WithoutTheSchemaACallSaysWhatToDo(t *testing.T) {
	forEachEmpty(t, func(t *testing.T, f *fixture) {
		if f.db.Name == testdb.SQLServer {
			f.needs(errorNumbers)
		}
		_, err := f.outbox.Enqueue(f.ctx(), f.db.DB, outbox.Message{Topic: "orders"})
		f.ErrorIs(err, outbox.ErrSchema)
		_, err = f.outbox.Claim(f.ctx(), outbox.ClaimParams{Topics: quotas("orders")})
		f.ErrorIs(err, outbox.ErrSchema)
		f.ErrorContains(err, f.object(f.config.Dialect.Traits().Table), "it names the object")

		// An older table, without a column that came later.
		f.migrate()
		f.enqueueN("orders", 1)
		view := "outbox_view"
		if f.db.Name == testdb.SQLServer {
			view = "Outbox_View"
		}
		f.exec("DROP VIEW %s", f.object(view))
		if f.db.Name == testdb.SQLite {
			f.exec("DROP VIEW outbox_queued")
		}
		f.exec("ALTER TABLE {outbox} DROP COLUMN {stream_key}")
		_, err = f.outbox.Enqueue(f.ctx(), f.db.DB, outbox.Message{Topic: "orders"})
		f.ErrorIs(err, outbox.ErrSchema)
		_, err = f.outbox.Claim(f.ctx(), outbox.ClaimParams{Topics: quotas("orders")})
		f.ErrorIs(err, outbox.ErrSchema)
	})
}

func TestOBX103_CheckNamesWhatIsMissing(t *testing.T) {
	forEachEmpty(t, func(t *testing.T, f *fixture) {
		check := func() error { return outbox.Check(f.ctx(), f.db.DB, f.migrateConfig()) }
		err := check()
		f.ErrorIs(err, outbox.ErrSchema)
		f.ErrorContains(err, f.config.Dialect.Traits().Table)
		f.migrate()
		if f.db.Name == testdb.SQLServer {
			f.needs(indexNames, level130)
		}
		f.NoError(check())

		index, drop := "outbox_ready", "DROP INDEX "+f.config.Dialect.Quote(f.schema())+".outbox_ready"
		if f.db.Name == testdb.SQLServer {
			index, drop = "IX_Outbox_State_Ready", "DROP INDEX IX_Outbox_State_Ready ON {outbox_state}"
		}
		f.exec("%s", f.sql("%s", drop))
		err = check()
		f.ErrorIs(err, outbox.ErrSchema)
		f.ErrorContains(err, index)
		f.ErrorIs(outbox.Check(f.ctx(), nil, f.migrateConfig()), base.ErrNilDB)
	})
}

func TestOBX103_CheckNamesWhatIsOlder(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		history := f.object(f.config.Dialect.Traits().Table + "_migrations")
		if f.db.Name == testdb.SQLServer {
			history = f.object("Outbox_Migrations")
		}
		f.exec("DELETE FROM %s WHERE %s = 1", history, f.column("version"))
		err := outbox.Check(f.ctx(), f.db.DB, f.migrateConfig())
		f.ErrorIs(err, outbox.ErrSchema)
		f.ErrorContains(err, "0001")
		f.migrate() // and mends it: each migration is idempotent by itself
		f.exec("UPDATE %s SET %s = 'older' WHERE %s = 0", history, f.column("checksum"), f.column("version"))
		f.ErrorIs(outbox.Check(f.ctx(), f.db.DB, f.migrateConfig()), outbox.ErrSchema)
		f.migrate()
	})
}

func TestOBX104_MigratingAgainChangesNothing(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.claimOne("orders")
		before := f.catalog()
		for range 2 {
			f.migrate()
		}
		f.sameCatalog(before, f.catalog())
		f.Equal(int(outbox.InProgress), f.row(c.ID).status, "the messages stay")
		f.Equal([]outbox.WorkItemID(nil), f.settle(settled(outbox.Ack, c)...))

		// It does not even try to create what is there.
		log := &faults.Log{}
		f.NoError(outbox.Migrate(f.ctx(), faults.Open(t, f.db, log.Hooks()), f.migrateConfig()))
		for _, s := range log.Take() {
			f.NotContains(s.Text, "CREATE INDEX")
			f.NotContains(s.Text, "CREATE FUNCTION")
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
			pool := f.db.Reopen(t) // as another process would
			group.Go(func() {
				<-start
				failures[i] = outbox.Migrate(f.ctx(), pool.DB, f.migrateConfig())
			})
		}
		close(start)
		group.Wait()
		for _, err := range failures {
			f.NoError(err)
		}
		f.claimOne("orders")
		before := f.catalog()
		f.migrate()
		f.sameCatalog(before, f.catalog())
	})
}

func TestTrap_AMigrationThatFailsLeavesNothing(t *testing.T) {
	forEachEmpty(t, func(t *testing.T, f *fixture) {
		for _, at := range []string{"CREATE INDEX", "CREATE FUNCTION"} {
			if at == "CREATE FUNCTION" && !f.config.Dialect.Traits().Procedures {
				continue
			}
			if f.db.Name == testdb.SQLServer && at == "CREATE FUNCTION" {
				at = "ALTER PROCEDURE"
			}
			pool := faults.Open(t, f.db, faults.Hooks{Before: func(_ context.Context, s faults.Statement) error {
				if strings.Contains(s.Text, at) {
					return &faults.Error{Number: 50000, State: "XX000", Result: 10}
				}
				return nil
			}})
			f.Error(outbox.Migrate(f.ctx(), pool, f.migrateConfig()))
			f.Empty(f.names("table"), "stopped at %s", at)
		}
		f.migrate()
	})
}

// The script is what Migrate does: on a fresh schema both leave the same.
func TestTrap_ThePrintedScriptEqualsMigrate(t *testing.T) {
	forEachEmpty(t, func(t *testing.T, f *fixture) {
		printed, err := outbox.MigrationSQL(f.migrateConfig())
		f.NoError(err)
		f.NoError(f.run(printed))
		byScript := f.catalog()
		f.claimOne("orders")
		f.NoError(f.run(printed), "it is idempotent")
		f.sameCatalog(byScript, f.catalog())
		f.Equal(1, f.count())

		// Migrate finds all of it done.
		log := &faults.Log{}
		f.NoError(outbox.Migrate(f.ctx(), faults.Open(t, f.db, log.Hooks()), f.migrateConfig()))
		for _, s := range log.Take() {
			f.NotContains(s.Text, "0001")
			f.NotContains(s.Text, "CREATE INDEX")
			f.NotContains(s.Text, "CREATE FUNCTION")
			f.NotContains(s.Text, "ALTER PROCEDURE")
		}
		f.sameCatalog(byScript, f.catalog())

		other := &fixture{Assertions: f.Assertions, t: t, db: f.another(), config: f.config}
		other.config.Schema = other.db.Schema
		other.migrate()
		f.sameCatalog(byScript, other.catalog())
	})
}

// another is a second empty database or schema of the same backend.
func (f *fixture) another() *testdb.DB {
	f.t.Helper()
	for _, b := range testdb.Backends(f.t) {
		if b.Name == f.db.Name {
			return b.Open(f.t)
		}
	}
	return nil
}

// inSchema lets the fixture use a schema that the library is to create, and drops it at the end.
func (f *fixture) inSchema(schema string) {
	f.t.Helper()
	f.config.Schema = schema
	f.outbox = f.newOutbox(f.db.DB)
	f.t.Cleanup(func() {
		if f.db.Name == testdb.SQLServer {
			f.dropObjects()
			f.drop("DROP SCHEMA " + f.config.Dialect.Quote(schema))
		} else {
			f.drop("DROP SCHEMA IF EXISTS " + f.config.Dialect.Quote(schema) + " CASCADE")
		}
	})
	f.t.Cleanup(f.checkInvariants)
}

func (f *fixture) drop(statement string) {
	if _, err := f.db.ExecContext(context.WithoutCancel(f.ctx()), statement); err != nil {
		f.t.Errorf("%s: %v", statement, err)
	}
}

// dropObjects drops all that is in the schema, on SQL Server, what was created last first. It quotes the names itself.
func (f *fixture) dropObjects() {
	rows, err := f.db.QueryContext(context.WithoutCancel(f.ctx()), `SELECT CASE o.type WHEN 'V' THEN 'VIEW' WHEN 'P' THEN 'PROCEDURE' ELSE 'TABLE' END, o.name
		FROM sys.objects o JOIN sys.schemas s ON s.schema_id = o.schema_id WHERE s.name = @p1 AND o.type IN ('V', 'P', 'U')
		ORDER BY CASE o.type WHEN 'V' THEN 1 WHEN 'P' THEN 2 ELSE 3 END, o.object_id DESC`, f.schema())
	if err != nil {
		f.t.Errorf("listing the schema: %v", err)
		return
	}
	defer func() { _ = rows.Close() }() // rows.Err tells
	var drops []string
	for rows.Next() {
		var kind, name string
		if err := rows.Scan(&kind, &name); err != nil {
			f.t.Errorf("listing the schema: %v", err)
		}
		drops = append(drops, "DROP "+kind+" "+f.config.Dialect.Quote(f.schema())+"."+f.config.Dialect.Quote(name))
	}
	if err := rows.Err(); err != nil {
		f.t.Errorf("listing the schema: %v", err)
	}
	for _, drop := range drops {
		f.drop(drop)
	}
}
