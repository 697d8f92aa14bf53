package schema_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/join"
)

// drops are ways to lose a part of the outbox.
func (f *fixture) drops() map[string]string {
	outboxTable := f.Object(f.Config.Dialect.Traits().Table)
	switch f.DB.Name {
	case testdb.Postgres:
		return map[string]string{
			"a function":        "DROP FUNCTION " + f.Object("outbox_claim") + "(json)",
			"a view":            "DROP VIEW " + f.Object("outbox_view"),
			"the view of kept":  "DROP VIEW " + f.Object("outbox_kept"),
			"an index":          "DROP INDEX " + f.Object("outbox_ready"),
			"an index of joins": "DROP INDEX " + f.Object("outbox_join_ended"),
			"the table":         "DROP TABLE " + outboxTable + " CASCADE",
			"a table of joins":  "DROP TABLE " + f.Object("outbox_join_wait"),
			"the counter":       "DROP TABLE " + f.Object("outbox_log_counter"),
		}
	case testdb.SQLServer:
		return map[string]string{
			"a procedure":       "DROP PROCEDURE " + f.Object("Outbox_Claim"),
			"a view":            "DROP VIEW " + f.Object("Outbox_View"),
			"the view of kept":  "DROP VIEW " + f.Object("Outbox_Kept"),
			"an index":          "DROP INDEX [IX_Outbox_Ready] ON " + outboxTable,
			"an index of joins": "DROP INDEX [IX_OutboxJoin_Ended] ON " + f.Object("OutboxJoin"),
			"the table":         "DROP TABLE " + outboxTable,
			"a table of joins":  "DROP TABLE " + f.Object("OutboxJoinWait"),
			"the counter":       "DROP TABLE " + f.Object("Outbox_Log_Counter"),
		}
	default:
		return map[string]string{
			"a view":            "DROP VIEW outbox_view",
			"the view of kept":  "DROP VIEW outbox_kept",
			"an index":          "DROP INDEX outbox_ready",
			"an index of joins": "DROP INDEX outbox_join_ended",
			"a trigger":         "DROP TRIGGER outbox_join_wake",
			"the table":         "DROP TABLE outbox",
			"a table of joins":  "DROP TABLE outbox_join_wait",
			"the counter":       "DROP TABLE outbox_log_counter",
		}
	}
}

// Check said "run outbox.Migrate" of what was dropped, and Migrate did nothing.
func TestTrap_MigrateRepairsWhatWasDropped(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		if f.DB.Name == testdb.SQLServer {
			f.Needs(suite.Level130)
		}
		check := func() error { return outbox.Check(f.Context(), f.DB.DB, f.MigrateConfig()) }
		for what, drop := range f.drops() {
			if f.DB.Name == testdb.SQLServer && f.Lacks(suite.IndexNames) != "" && (what == "an index" || what == "an index of joins") {
				continue // it has another name there
			}
			f.Exec("%s", drop)
			f.ErrorIs(check(), outbox.ErrSchema, what)
			f.Migrate()
			f.NoError(check(), what)
		}
		f.ClaimOne("orders")
		f.JoinsWork()
	})
}

// Without the counter positions began again with 1: groups had passed them.
func TestMigrate_TheCounterGoesOn(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Sequencer()
		f.EnqueueLogged(f.LogOutbox(), "orders", "1", "2", "3")
		f.Eventually(func() bool { return f.LastPosition() == 3 }, suite.Patience, suite.Tick)
		f.Exec("DROP TABLE %s", f.LogTable("counter"))
		f.Migrate()
		f.EqualValues(3, f.LastPosition())
	})
}

// A column is nothing that Migrate puts back: it says so.
func TestMigrate_SaysWhatItCannotRepair(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Exec("DROP VIEW %s", f.Object(f.Either("outbox_view", "Outbox_View")))
		if f.DB.Name == testdb.SQLite {
			f.Exec("DROP VIEW outbox_queued")
		}
		f.Exec("ALTER TABLE {outbox} DROP COLUMN {stream_key}")
		err := outbox.Migrate(f.Context(), f.DB.DB, f.MigrateConfig())
		f.Error(err)
		f.Exec("DROP TABLE {outbox}")
		f.Migrate()
		f.ClaimOne("orders")
	})
}

// What one call leaves out stays where another has put it.
func TestMigrate_WithoutJoinsLeavesTheirMessagesKept(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		id := f.Start(c, join.StartParams{ExpectedSteps: 2})
		f.AddSteps(c, id, "steps", 1)
		config := f.MigrateConfig()
		config.WithoutJoins = true
		kept := func() int64 {
			return f.Number("SELECT COUNT(*) FROM %s", f.Object(f.Either("outbox_kept", "Outbox_Kept")))
		}
		script, err := outbox.MigrationSQL(config)
		f.NoError(err)
		f.NoError(f.Run(script))
		f.EqualValues(1, kept(), "after the script")
		f.Exec("DROP VIEW %s", f.Object(f.Either("outbox_kept", "Outbox_Kept")))
		f.NoError(outbox.Migrate(f.Context(), f.DB.DB, config))
		f.EqualValues(1, kept(), "after Migrate")
	})
}

// An older binary put its older functions back, under the feet of the newer processes.
func TestTrap_MigrateByAnOlderBinary(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		history := f.Object(f.Either("outbox_migrations", "Outbox_Migrations"))
		f.Exec("UPDATE %s SET {checksum} = '999:of-a-newer-library' WHERE {version} = 0", history)
		before := f.Catalog()
		for name, err := range map[string]error{
			"Migrate": outbox.Migrate(f.Context(), f.DB.DB, f.MigrateConfig()),
			"Check":   outbox.Check(f.Context(), f.DB.DB, f.MigrateConfig()),
		} {
			f.ErrorIs(err, outbox.ErrSchemaNewer, name)
			f.ErrorIs(err, outbox.ErrSchema, name)
			f.ErrorContains(err, "999")
			f.NotContains(err.Error(), "run outbox.Migrate", name)
		}
		f.SameCatalog(before, f.Catalog())
		f.EqualValues(1, f.Number("SELECT COUNT(*) FROM %s WHERE {version} = 0 AND {checksum} = '999:of-a-newer-library'", history))
		f.Exec("UPDATE %s SET {checksum} = '0:of-an-older-library' WHERE {version} = 0", history)
		f.Migrate()
		f.EqualValues(0, f.Number("SELECT COUNT(*) FROM %s WHERE {checksum} = '0:of-an-older-library'", history))
	})
}

// One row with an infinite time, set by SQL, stopped every claim.
func TestTrap_InfiniteTimes(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		odd := map[string][]string{
			testdb.Postgres: {"'infinity'", "'-infinity'"}, testdb.SQLite: {"1.5", "'soon'", "x'00'"}, testdb.SQLServer: nil,
		}[f.DB.Name]
		id := f.EnqueueN("orders", 1)[0]
		for _, value := range odd {
			columns := map[string]string{"created_at": "{outbox}", "due_at": "{outbox}", "next_attempt_at": "{outbox_state}", "processed_at": "{outbox_state}"}
			if f.DB.Name == testdb.Postgres {
				columns["dead_at"] = "{outbox_state}"
			}
			for column, table := range columns {
				_, err := f.DB.ExecContext(f.Context(), f.SQL("UPDATE %s SET {%s} = %s WHERE {seq} IN (SELECT {seq} FROM {all} WHERE {message_id} = '%s')", table, column, value, id))
				assert.Error(t, err, "%s = %s", column, value)
			}
		}
		topics, err := f.Outbox.Topics(f.Context())
		f.NoError(err)
		f.Len(topics, 1)
		claimed := f.Claim("orders")
		f.Len(claimed, 1)
		f.Settle(suite.Settled(outbox.Fail, claimed...)...)
		failed, err := f.Outbox.Failed(f.Context(), outbox.ListParams{})
		f.NoError(err)
		f.Len(failed, 1)
	})
}

// A message that is in the log alone had no state in the view.
func TestTrap_TheViewNamesEveryState(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.EnqueueLogged(f.LogOutbox(), "orders", "1")
		states, err := f.Strings(f.DB, fmt.Sprintf("SELECT %s FROM %s", f.Either("state", "State"), f.Object(f.Either("outbox_view", "Outbox_View"))))
		f.NoError(err)
		f.Equal([]string{"not queued"}, states)
	})
}

// psql -1 and most migration tools have a transaction of their own, which the script's COMMIT ended.
func TestTrap_ThePrintedScriptInATransaction(t *testing.T) {
	forEachEmpty(t, func(t *testing.T, f *fixture) {
		if f.DB.Name != testdb.Postgres {
			return // SQLite's BEGIN and T-SQL's batches are run as they are
		}
		script, err := outbox.MigrationSQL(f.MigrateConfig())
		f.NoError(err)
		tx, err := f.DB.BeginTx(f.Context(), nil)
		f.NoError(err)
		_, err = tx.ExecContext(f.Context(), script)
		f.NoError(err)
		f.NoError(tx.Rollback())
		f.Empty(f.Names("table"), "it went with the transaction")
	})
}

// Tables in which contents and states were one cannot be carried over: who migrates or checks is told what to do.
func TestMigrate_NamesAnEarlierLayout(t *testing.T) {
	forEachEmpty(t, func(t *testing.T, f *fixture) {
		f.Exec("CREATE TABLE {outbox} ({seq} BIGINT NOT NULL, {topic} VARCHAR(10) NOT NULL, {status} SMALLINT NOT NULL, {locked_until} BIGINT)")
		err := outbox.Migrate(f.Context(), f.DB.DB, f.MigrateConfig())
		f.ErrorIs(err, outbox.ErrSchema)
		f.ErrorContains(err, "drop its tables")
		if f.Lacks(suite.ErrorNumbers) == "" {
			f.ErrorContains(outbox.Check(f.Context(), f.DB.DB, f.MigrateConfig()), "drop its tables")
		}
		f.Exec("DROP TABLE {outbox}")
		f.Migrate()
	})
}

// States whose columns for the indexes are generated would be published to, and never claimed.
func TestMigrate_NamesGeneratedColumns(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		if f.DB.Name != testdb.Postgres {
			return // the others have no such columns
		}
		f.Exec("ALTER TABLE {outbox_state} DROP COLUMN ready, ADD COLUMN ready boolean GENERATED ALWAYS AS (status = 0) STORED")
		for _, err := range []error{outbox.Check(f.Context(), f.DB.DB, f.MigrateConfig()), outbox.Migrate(f.Context(), f.DB.DB, f.MigrateConfig())} {
			f.ErrorIs(err, outbox.ErrSchema)
			f.ErrorContains(err, "ready is a generated column")
		}
		f.Exec("ALTER TABLE {outbox_state} ALTER ready DROP EXPRESSION, ALTER ready SET DEFAULT true, ALTER ready SET NOT NULL")
		f.Migrate()
	})
}

// Logical replication sends no generated columns, and finds rows by their primary keys: a copy whose key has one stops at the first
// row that is deleted.
func TestTrap_NoPrimaryKeyHasAGeneratedColumn(t *testing.T) {
	forEach(t, func(_ *testing.T, f *fixture) {
		if f.DB.Name != testdb.Postgres {
			return
		}
		f.Zero(f.Number("SELECT count(*) FROM pg_index AS i INNER JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)"+
			" WHERE i.indisprimary AND a.attgenerated <> '' AND i.indrelid IN (SELECT oid FROM pg_class WHERE relnamespace = '%s'::regnamespace)", f.Schema()))
	})
}

// CREATE INDEX IF NOT EXISTS waits for the writers of a table even where it has nothing to do, and so does CREATE OR REPLACE VIEW
// for readers: beside one long transaction, the script and every repair failed.
func TestTrap_MigratingAgainBesideALongTransaction(t *testing.T) {
	forEachEmpty(t, func(t *testing.T, f *fixture) {
		if f.DB.Name != testdb.Postgres {
			return // SQLite has one writer, and T-SQL looks before it creates
		}
		f.WithInbox = true
		f.Migrate()
		printed, err := outbox.MigrationSQL(f.MigrateConfig())
		f.NoError(err)
		tx, err := f.DB.BeginTx(f.Context(), nil)
		f.NoError(err)
		defer func() { _ = tx.Rollback() }()
		for _, kind := range []string{"table", "view"} {
			for _, name := range f.Names(kind) {
				f.ExecOn(tx, "LOCK TABLE %s IN ROW EXCLUSIVE MODE", f.Config.Dialect.Quote(f.Schema())+"."+f.Config.Dialect.Quote(name))
			}
		}
		before := f.Catalog()
		f.Migrate()
		f.NoError(f.Run(printed), "the script")
		f.SameCatalog(before, f.Catalog())
		f.Exec("DROP FUNCTION %s(json)", f.Object("outbox_claim"))
		f.Migrate()
		f.SameCatalog(before, f.Catalog())
	})
}
