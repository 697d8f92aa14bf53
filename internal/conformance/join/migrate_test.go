package join_test

import (
	"context"
	"errors"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/join"
)

// joinTableNames are the tables of joins, as the catalog has them.
func (f *fixture) joinTableNames() (names []string) {
	for name := range suite.JoinTables {
		names = append(names, f.JoinTable(name))
	}
	return suite.Lower(names)
}

func TestJOIN090_OBX105_MigrateCreatesTheTablesOfJoins(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Subset(suite.Lower(f.Names("table")), f.joinTableNames())
		f.Subset(suite.Lower(f.Names("table")), suite.Lower([]string{f.Config.Dialect.Traits().Table, f.Either("outbox_join", "OutboxJoin"), f.Either("outbox_join_member", "OutboxJoinMember")}))
		if f.Lacks(suite.IndexNames) == "" {
			want := []string{"outbox_join_group", "outbox_join_pending", "outbox_join_ended", "outbox_join_member_message"}
			if f.DB.Name == testdb.SQLServer {
				want = []string{"IX_OutboxJoin_GroupingKey", "IX_OutboxJoin_Pending", "IX_OutboxJoin_Ended", "IX_OutboxJoinMember_MessageId"}
			}
			f.Subset(f.Names("index"), want)
		}
		f.JoinsWork()
	})
}

// withoutJoinTables is an outbox that was asked to leave them out.
func withoutJoinTables(t *testing.T, test func(t *testing.T, f *fixture)) {
	t.Helper()
	forEachEmpty(t, func(t *testing.T, f *fixture) {
		f.WithoutJoins = true
		f.Migrate()
		test(t, f)
	})
}

func TestJOIN090_WithoutJoinsTheOutboxWorksAsBefore(t *testing.T) {
	withoutJoinTables(t, func(t *testing.T, f *fixture) {
		noTables := func() {
			for _, name := range f.Names("table") {
				f.NotContains(suite.Lower(f.joinTableNames()), suite.Lower([]string{name})[0])
			}
		}
		noTables()
		f.Works() // it migrates again, too
		noTables()

		s := f.Subscriber(func(c *outbox.SubscriberConfig) { c.DeleteOnAck, c.MaxAttempts = true, 1 })
		messages := f.Subscribe(s, "orders")
		done, failed := f.EnqueueN("orders", 1)[0], f.EnqueueN("orders", 1)[0]
		for range 2 {
			if msg := f.Receive(messages); f.Delivery(msg).MessageID() == done {
				msg.Ack()
			} else {
				msg.Nack()
			}
		}
		f.Becomes(failed, outbox.Failed)
		f.Eventually(func() bool { return f.Count() == 1 }, suite.Patience, 2*time.Millisecond)

		if f.DB.Name == testdb.SQLServer {
			f.Needs(suite.IndexNames, suite.Level130)
		}
		f.NoError(outbox.Check(f.Context(), f.DB.DB, f.MigrateConfig()))
		config := f.MigrateConfig()
		config.WithoutJoins = false
		err := outbox.Check(f.Context(), f.DB.DB, config)
		f.ErrorIs(err, outbox.ErrSchema)
		for name := range suite.JoinTables {
			f.ErrorContains(err, f.JoinTable(name), "it names what is missing")
		}
	})
}

func TestJOIN090_WithoutJoinsACallSaysWhatToDo(t *testing.T) {
	withoutJoinTables(t, func(t *testing.T, f *fixture) {
		if f.DB.Name == testdb.SQLServer {
			f.Needs(suite.ErrorNumbers)
		}
		c := f.Joins()
		id, message := join.ID{1}, f.EnqueueN("s", 1)[0]
		for name, call := range map[string]func() error{
			"start":            func() error { _, err := c.Start(f.Context(), nil, join.StartParams{ExpectedSteps: 1}); return err },
			"attach":           func() error { return c.Attach(f.Context(), nil, id, message) },
			"attach by report": func() error { return c.AttachByReport(f.Context(), nil, id, message) },
			"enqueue":          func() error { _, err := c.Enqueue(f.Context(), nil, id, outbox.Message{Topic: "s"}); return err },
			"report":           func() error { return c.ReportStepCompleted(f.Context(), nil, id, message) },
			"seal":             func() error { return c.Seal(f.Context(), nil, id) },
			"cancel":           func() error { return c.Cancel(f.Context(), nil, id) },
			"wait":             func() error { _, err := c.EnqueueWait(f.Context(), nil, suite.Waits(id, "next", "")); return err },
			"get":              func() error { _, err := c.Get(f.Context(), nil, id); return err },
			"by group":         func() error { _, err := c.ByGroup(f.Context(), nil, "g", join.ID{}, 1); return err },
			"pending":          func() error { _, err := c.Pending(f.Context(), nil, join.ID{}, 1); return err },
			"recent":           func() error { _, err := c.Recent(f.Context(), nil, join.ID{}, 1); return err },
			"steps":            func() error { _, err := c.Steps(f.Context(), nil, id, outbox.MessageID{}, 1); return err },
			"purge":            func() error { _, err := c.Purge(f.Context(), 0); return err },
			"middleware":       func() error { _, err := reporting(c, nil)(relayed(message.String())); return err },
		} {
			f.ErrorIs(call(), outbox.ErrSchema, name)
		}
		f.Equal(1, f.Count(), "and nothing is sent")
	})
}

func TestJOIN091_092_JoinsAreAddedLater(t *testing.T) {
	withoutJoinTables(t, func(t *testing.T, f *fixture) {
		table := f.Config.Dialect.Traits().Table
		before := f.columns(table)
		f.NotEmpty(before)
		old := f.ClaimOne("old")

		f.WithoutJoins = false
		f.Migrate()
		f.Equal(before, f.columns(table), "the outbox table is as it was")
		f.Subset(suite.Lower(f.Names("table")), f.joinTableNames())
		c := f.Joins()
		id := f.Start(c, join.StartParams{ExpectedSteps: 2})
		f.NoError(c.Attach(f.Context(), nil, id, old.ID))
		f.AddSteps(c, id, "s", 1)
		f.Settle(suite.Settled(outbox.Ack, old)...)
		f.Stands(c, id, join.Pending, 1, 0)

		// Migrating again does no harm, not even for someone who does not ask for joins.
		catalog := f.Catalog()
		for _, f.WithoutJoins = range []bool{false, true, false} {
			f.Migrate()
			f.SameCatalog(catalog, f.Catalog())
		}
		f.Exec("UPDATE {outbox} SET {created_at} = {past}")
		f.ExecStates("UPDATE {outbox_state} SET {processed_at} = {past} WHERE {status} = 2")
		f.Zero(f.purge(outbox.PurgeParams{}), "the messages of a pending join are still kept")
		f.EndSteps("s", 0)
		f.Stands(c, id, join.Completed, 2, 0)
		f.Equal(1, f.purge(outbox.PurgeParams{OlderThan: time.Minute}))
		if f.DB.Name == testdb.SQLServer {
			f.Needs(suite.IndexNames, suite.Level130)
		}
		f.NoError(outbox.Check(f.Context(), f.DB.DB, f.MigrateConfig()))
	})
}

// By either way, at once or later, the same is installed; the script without joins has none.
func TestJOIN091_092_TheOrderOfMigrationsDoesNotMatter(t *testing.T) {
	withoutJoinTables(t, func(t *testing.T, f *fixture) {
		f.WithoutJoins = false
		f.Migrate()
		at := f.On(f.Another())
		at.Migrate()
		f.SameCatalog(at.Catalog(), f.Catalog())

		without := f.On(f.Another())
		without.WithoutJoins = true
		script, err := outbox.MigrationSQL(without.MigrateConfig())
		f.NoError(err)
		f.NoError(without.Run(script))
		f.NoError(without.Run(script))
		for _, name := range suite.Lower(without.Names("table")) {
			f.NotContains(f.joinTableNames(), name)
		}
		without.ClaimOne("orders")
		without.WithoutJoins = false
		script, err = outbox.MigrationSQL(without.MigrateConfig())
		f.NoError(err)
		f.NoError(without.Run(script))
		without.Clear()
		without.JoinsWork()
	})
}

// Settling looks for the tables each time: whoever has settled before they came counts from then on.
func TestJOIN092_TablesThatComeWhileWorkersRun(t *testing.T) {
	withoutJoinTables(t, func(t *testing.T, f *fixture) {
		conn, err := f.DB.Conn(f.Context())
		f.NoError(err)
		defer func() { f.NoError(conn.Close()) }()
		first := f.ClaimOne("s")
		settle := func(claimed ...outbox.Claimed) error {
			refused, err := f.Outbox.Settle(f.Context(), conn, suite.Settled(outbox.Ack, claimed...))
			if err == nil && len(refused) > 0 {
				err = errors.New("refused")
			}
			return err
		}
		f.NoError(settle(first))
		f.NoError(outbox.Migrate(context.WithoutCancel(f.Context()), f.DB.Reopen(t).DB, outbox.MigrateConfig{Dialect: f.Config.Dialect, Schema: f.Config.Schema}))
		c := f.Joins()
		id, _ := f.StartWith(c, "s", 3)
		for _, s := range f.Claim("s") {
			f.NoError(settle(s))
		}
		f.Stands(c, id, join.Completed, 3, 0)
	})
}
