package conformance

import (
	"context"
	"errors"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/join"
)

// joinTableNames are the tables of joins, as the catalog has them.
func (f *fixture) joinTableNames() (names []string) {
	for name := range joinTables {
		names = append(names, f.joinTable(name))
	}
	return lower(names)
}

func TestJOIN090_OBX105_MigrateCreatesTheTablesOfJoins(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Subset(lower(f.names("table")), f.joinTableNames())
		f.Subset(lower(f.names("table")), lower([]string{f.config.Dialect.Traits().Table, f.either("outbox_join", "OutboxJoin"), f.either("outbox_join_member", "OutboxJoinMember")}))
		if f.lacks(indexNames) == "" {
			want := []string{"outbox_join_group", "outbox_join_ended", "outbox_join_member_message"}
			if f.db.Name == testdb.SQLServer {
				want = []string{"IX_OutboxJoin_GroupingKey", "IX_OutboxJoin_Ended", "IX_OutboxJoinMember_MessageId"}
			}
			f.Subset(f.names("index"), want)
		}
		f.joinsWork()
	})
}

// withoutJoinTables is an outbox that was asked to leave them out.
func withoutJoinTables(t *testing.T, test func(t *testing.T, f *fixture)) {
	t.Helper()
	forEachEmpty(t, func(t *testing.T, f *fixture) {
		f.withoutJoins = true
		f.migrate()
		test(t, f)
	})
}

func TestJOIN090_WithoutJoinsTheOutboxWorksAsBefore(t *testing.T) {
	withoutJoinTables(t, func(t *testing.T, f *fixture) {
		noTables := func() {
			for _, name := range f.names("table") {
				f.NotContains(lower(f.joinTableNames()), lower([]string{name})[0])
			}
		}
		noTables()
		f.works() // it migrates again, too
		noTables()

		s := f.subscriber(func(c *outbox.SubscriberConfig) { c.DeleteOnAck, c.MaxAttempts = true, 1 })
		messages := f.subscribe(s, "orders")
		done, failed := f.enqueueN("orders", 1)[0], f.enqueueN("orders", 1)[0]
		for range 2 {
			if msg := f.receive(messages); f.delivery(msg).MessageID() == done {
				msg.Ack()
			} else {
				msg.Nack()
			}
		}
		f.becomes(failed, outbox.Failed)
		f.Eventually(func() bool { return f.count() == 1 }, patience, 2*time.Millisecond)

		if f.db.Name == testdb.SQLServer {
			f.needs(indexNames, level130)
		}
		f.NoError(outbox.Check(f.ctx(), f.db.DB, f.migrateConfig()))
		config := f.migrateConfig()
		config.WithoutJoins = false
		err := outbox.Check(f.ctx(), f.db.DB, config)
		f.ErrorIs(err, outbox.ErrSchema)
		for name := range joinTables {
			f.ErrorContains(err, f.joinTable(name), "it names what is missing")
		}
	})
}

func TestJOIN090_WithoutJoinsACallSaysWhatToDo(t *testing.T) {
	withoutJoinTables(t, func(t *testing.T, f *fixture) {
		if f.db.Name == testdb.SQLServer {
			f.needs(errorNumbers)
		}
		c := f.joins()
		id, message := join.ID{1}, f.enqueueN("s", 1)[0]
		for name, call := range map[string]func() error{
			"start":            func() error { _, err := c.Start(f.ctx(), nil, join.StartParams{ExpectedSteps: 1}); return err },
			"attach":           func() error { return c.Attach(f.ctx(), nil, id, message) },
			"attach by report": func() error { return c.AttachByReport(f.ctx(), nil, id, message) },
			"enqueue":          func() error { _, err := c.Enqueue(f.ctx(), nil, id, outbox.Message{Topic: "s"}); return err },
			"report":           func() error { return c.ReportStepCompleted(f.ctx(), nil, id, message) },
			"seal":             func() error { return c.Seal(f.ctx(), nil, id) },
			"cancel":           func() error { return c.Cancel(f.ctx(), nil, id) },
			"wait":             func() error { _, err := c.EnqueueWait(f.ctx(), nil, waits(id, "next", "")); return err },
			"get":              func() error { _, err := c.Get(f.ctx(), nil, id); return err },
			"by group":         func() error { _, err := c.ByGroup(f.ctx(), nil, "g", join.ID{}, 1); return err },
			"steps":            func() error { _, err := c.Steps(f.ctx(), nil, id, outbox.MessageID{}, 1); return err },
			"purge":            func() error { _, err := c.Purge(f.ctx(), 0); return err },
			"middleware":       func() error { _, err := reporting(c, nil)(relayed(message.String())); return err },
		} {
			f.ErrorIs(call(), outbox.ErrSchema, name)
		}
		f.Equal(1, f.count(), "and nothing is sent")
	})
}

func TestJOIN091_092_JoinsAreAddedLater(t *testing.T) {
	withoutJoinTables(t, func(t *testing.T, f *fixture) {
		table := f.config.Dialect.Traits().Table
		before := f.columns(table)
		f.NotEmpty(before)
		old := f.claimOne("old")

		f.withoutJoins = false
		f.migrate()
		f.Equal(before, f.columns(table), "the outbox table is as it was")
		f.Subset(lower(f.names("table")), f.joinTableNames())
		c := f.joins()
		id := f.start(c, join.StartParams{ExpectedSteps: 2})
		f.NoError(c.Attach(f.ctx(), nil, id, old.ID))
		f.addSteps(c, id, "s", 1)
		f.settle(settled(outbox.Ack, old)...)
		f.stands(c, id, join.Pending, 1, 0)

		// Migrating again does no harm, not even for someone who does not ask for joins.
		catalog := f.catalog()
		for _, f.withoutJoins = range []bool{false, true, false} {
			f.migrate()
			f.sameCatalog(catalog, f.catalog())
		}
		f.exec("UPDATE {outbox} SET {created_at} = {past}")
		f.exec("UPDATE {outbox_state} SET {processed_at} = {past} WHERE {status} = 2")
		f.Zero(f.purge(outbox.PurgeParams{}), "the messages of a pending join are still kept")
		f.endSteps("s", 0)
		f.stands(c, id, join.Completed, 2, 0)
		f.Equal(1, f.purge(outbox.PurgeParams{OlderThan: time.Minute}))
		if f.db.Name == testdb.SQLServer {
			f.needs(indexNames, level130)
		}
		f.NoError(outbox.Check(f.ctx(), f.db.DB, f.migrateConfig()))
	})
}

// By either way, at once or later, the same is installed; the script without joins has none.
func TestJOIN091_092_TheOrderOfMigrationsDoesNotMatter(t *testing.T) {
	withoutJoinTables(t, func(t *testing.T, f *fixture) {
		f.withoutJoins = false
		f.migrate()
		at := &fixture{Assertions: f.Assertions, t: t, db: f.another(), config: f.config}
		at.config.Schema = at.db.Schema
		at.migrate()
		f.sameCatalog(at.catalog(), f.catalog())

		without := &fixture{Assertions: f.Assertions, t: t, db: f.another(), config: f.config, withoutJoins: true}
		without.config.Schema = without.db.Schema
		without.outbox = without.newOutbox(without.db.DB)
		script, err := outbox.MigrationSQL(without.migrateConfig())
		f.NoError(err)
		f.NoError(without.run(script))
		f.NoError(without.run(script))
		for _, name := range lower(without.names("table")) {
			f.NotContains(f.joinTableNames(), name)
		}
		without.claimOne("orders")
		without.withoutJoins = false
		script, err = outbox.MigrationSQL(without.migrateConfig())
		f.NoError(err)
		f.NoError(without.run(script))
		without.clear()
		without.joinsWork()
	})
}

// Settling looks for the tables each time: whoever has settled before they came counts from then on.
func TestJOIN092_TablesThatComeWhileWorkersRun(t *testing.T) {
	withoutJoinTables(t, func(t *testing.T, f *fixture) {
		conn, err := f.db.Conn(f.ctx())
		f.NoError(err)
		defer func() { f.NoError(conn.Close()) }()
		first := f.claimOne("s")
		settle := func(claimed ...outbox.Claimed) error {
			refused, err := f.outbox.Settle(f.ctx(), conn, settled(outbox.Ack, claimed...))
			if err == nil && len(refused) > 0 {
				err = errors.New("refused")
			}
			return err
		}
		f.NoError(settle(first))
		f.NoError(outbox.Migrate(context.WithoutCancel(f.ctx()), f.db.Reopen(t).DB, outbox.MigrateConfig{Dialect: f.config.Dialect, Schema: f.config.Schema}))
		c := f.joins()
		id, _ := f.startWith(c, "s", 3)
		for _, s := range f.claim("s") {
			f.NoError(settle(s))
		}
		f.stands(c, id, join.Completed, 3, 0)
	})
}
