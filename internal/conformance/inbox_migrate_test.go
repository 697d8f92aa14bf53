package conformance

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/inbox"
	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/testdb"
)

func TestInbox_MigrateCheckAndScript(t *testing.T) {
	forEachEmpty(t, func(t *testing.T, f *fixture) {
		config := inbox.Config{Dialect: f.config.Dialect, Schema: f.config.Schema}
		err := inbox.Check(f.ctx(), f.db.DB, config)
		f.ErrorIs(err, outbox.ErrSchema)
		f.NoError(inbox.Migrate(f.ctx(), f.db.DB, config))
		catalog := f.catalog()
		f.NoError(inbox.Migrate(f.ctx(), f.db.DB, config))
		f.sameCatalog(catalog, f.catalog())
		f.Subset(lower(f.names("table")), lower([]string{"Inbox", f.either("inbox_entry", "InboxEntry")}))
		for _, name := range lower(f.names("table")) {
			f.NotContains(name, "join")
		}
		if f.config.Dialect.Traits().Procedures && f.db.Name == testdb.SQLServer {
			f.Subset(lower(f.names("procedure")), lower([]string{"Inbox_Claim", "Inbox_Ack", "Inbox_Abandon", "Inbox_Fail", "Inbox_Reap", "Inbox_Entry_Add"}))
		}

		at := &fixture{Assertions: f.Assertions, t: t, db: f.another(), config: f.config}
		at.config.Schema = at.db.Schema
		script, err := inbox.MigrationSQL(inbox.Config{Dialect: at.config.Dialect, Schema: at.config.Schema})
		f.NoError(err)
		f.NoError(at.run(script))
		f.NoError(at.run(script))
		f.sameCatalog(catalog, at.catalog())

		if f.db.Name == testdb.SQLServer {
			f.needs(indexNames, level130)
		}
		f.NoError(inbox.Check(f.ctx(), f.db.DB, config))
		f.config.Table = f.either("inbox", "Inbox")
		f.exec("DROP INDEX %s", f.either(f.config.Dialect.Quote(f.schema())+".inbox_entry_last_seen", "IX_InboxEntry_LastSeenAt ON "+f.sql("{entry}")))
		err = inbox.Check(f.ctx(), f.db.DB, config)
		f.ErrorIs(err, outbox.ErrSchema)
		f.ErrorContains(err, f.either("inbox_entry_last_seen", "IX_InboxEntry_LastSeenAt"))

		with := config
		with.WithJoins = true
		f.ErrorContains(inbox.Check(f.ctx(), f.db.DB, with), f.either("inbox_join", "InboxJoin"))
		f.NoError(inbox.Migrate(f.ctx(), f.db.DB, with))
		f.outbox = f.newOutbox(f.db.DB)
		f.joinsWork()
	})
}

// An outbox has nothing of an inbox, works as before, and says what to do; the inbox's table can come later.
func TestInbox_WithoutItTheOutboxWorksAsBefore(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		for _, name := range lower(append(f.names("table"), f.names("view")...)) {
			f.NotContains(name, "entry")
		}
		f.works()
		config := inbox.Config{Dialect: f.config.Dialect, Schema: f.config.Schema, Table: f.config.Dialect.Traits().Table, WithJoins: true}
		in, err := inbox.New(f.db.DB, config, nil)
		f.NoError(err)
		if f.db.Name != testdb.SQLServer || f.lacks(errorNumbers) == "" {
			for name, call := range map[string]func() error{
				"begin": func() error {
					return outbox.InTx(f.ctx(), f.db.DB, func(ctx context.Context, tx *sql.Tx) error {
						_, err := in.Begin(ctx, tx, keyOf("1"), inbox.Hash{})
						return err
					})
				},
				"save": func() error {
					return outbox.InTx(f.ctx(), f.db.DB, func(ctx context.Context, tx *sql.Tx) error { return in.SaveResult(ctx, tx, keyOf("1"), nil) })
				},
				"enqueue": func() error { _, err := in.Enqueue(f.ctx(), nil, receivedOf("1", "")); return err },
				"get":     func() error { _, err := in.Get(f.ctx(), keyOf("1")); return err },
				"requeue": func() error { _, err := in.Requeue(f.ctx(), keyOf("1")); return err },
				"purge":   func() error { _, err := in.Purge(f.ctx(), outbox.PurgeParams{}); return err },
			} {
				f.ErrorIs(call(), outbox.ErrSchema, name)
			}
		}
		f.Zero(f.count())
		f.ErrorContains(inbox.Check(f.ctx(), f.db.DB, config), f.either("outbox_entry", "OutboxEntry"))

		f.NoError(inbox.Migrate(f.ctx(), f.db.DB, config))
		_, err = in.Enqueue(f.ctx(), nil, receivedOf("1", ""))
		f.NoError(err)
		f.migrate() // of the outbox alone: does no harm
		_, err = in.Enqueue(f.ctx(), nil, receivedOf("1", ""))
		f.NoError(err)
		f.Len(f.claim("ship"), 1)
		f.clear()
		f.works()
	})
}

func TestTrap_InboxNamesOfAnyKind(t *testing.T) {
	forEachEmpty(t, func(t *testing.T, f *fixture) {
		names := []string{`]"'`, `?1 $1 @p1`, "a.b c", "Grüße 🙂", "entry", "outbox_entry"}
		for _, name := range names {
			t.Run(name, func(t *testing.T) {
				g := newFixture(t, f.db, name)
				g.needs(named("", name))
				g.exec("DROP TABLE IF EXISTS %s", g.object("effects")) // of the inbox before it in the same schema
				newInboxFixture(g, name).everything()
			})
		}
		if f.config.Dialect.Traits().FixedSchema {
			return
		}
		t.Run("schema", func(t *testing.T) {
			schema := `x]"y' ` + f.config.Schema
			g := newFixture(t, f.db, "its own")
			g.needs(named(schema, "its own"))
			g.inSchema(schema)
			newInboxFixture(g, "its own").everything()
		})
	})
}

// everything goes once through all that an inbox can do.
func (f *inboxFixture) everything() {
	f.t.Helper()
	handle := f.guarded(f.in, func(msg *message.Message) ([]*message.Message, error) {
		return []*message.Message{message.NewMessage("next", nil)}, f.effect(msg.Context(), 1)
	})
	for range 2 {
		produced, err := handle(f.coming("1", "order"))
		f.NoError(err)
		f.Len(produced, 1)
	}
	f.Equal(1, f.countEffects())
	f.received("2")
	_, err := f.in.Enqueue(f.ctx(), nil, receivedOf("2", "payload of 2"))
	f.NoError(err)
	f.settle(settled(outbox.Fail, f.claim("ship")...)...)
	n, err := f.in.Requeue(f.ctx(), keyOf("2"))
	f.NoError(err)
	f.Equal(1, n)
	f.Equal("ready", f.state("2"))
	f.settle(settled(outbox.Ack, f.claim("ship")...)...)
	f.exec("UPDATE {entry} SET {first_seen_at} = {past}, {last_seen_at} = {past}")
	f.exec("UPDATE {outbox} SET {created_at} = {past}")
	f.exec("UPDATE {outbox_state} SET {processed_at} = {past}")
	n, err = f.in.Purge(f.ctx(), outbox.PurgeParams{})
	f.NoError(err)
	f.Equal(2, n)
	f.Zero(f.count() + f.countEntries())
}

// The role that suffices for messages suffices for an inbox.
func TestInbox_TheRoleSuffices(t *testing.T) {
	forEachEmpty(t, func(t *testing.T, base *fixture) {
		base.needs(executeAs)
		f := newInboxFixture(base, "in_"+base.config.Schema)
		script, err := inbox.RoleSQL(f.inboxConfig(f.config.Table))
		f.NoError(err)
		f.NoError(f.run(script))
		f.NoError(f.run(script))
		role := f.schema() + "_" + f.config.Table + f.either("_role", "_Role")
		member, stranger := f.user(role), f.user("")
		t.Cleanup(func() {
			if f.db.Name == testdb.Postgres {
				f.drop("DROP OWNED BY " + role)
			}
			f.drop("DROP ROLE " + role)
		})
		f.received("2")
		f.settle(settled(outbox.Ack, f.claim("ship")...)...)
		const key = `"n":0,"source":"shop","message_id":"1","handler":"ship"`
		save := f.callOf("entry_save", "{"+key+"}")
		if f.db.Name == testdb.SQLServer {
			save += ", 0x"
		} else {
			save = strings.TrimSuffix(save, ")") + ", '')"
		}
		calls := []string{
			f.callOf("entry_add", fmt.Sprintf(`{"entries":[{%s,"hash":"%s"}]}`, key, inbox.Hash{})),
			save,
			f.callOf("entry_get", `{"entries":[{`+key+`}]}`),
			"SELECT COUNT(*) FROM " + f.sql("{entry_view}"),
			f.callOf("entry_purge", `{"status":2,"older_than_ms":-60000,"limit":10}`),
		}
		f.Len(f.lacksRightTo(stranger, calls...), len(calls))
		f.Equal(1, f.countEntries())
		f.Empty(f.lacksRightTo(member, calls...))
		f.Zero(f.countEntries() + f.count())
		f.Len(f.lacksRightTo(member, "DROP TABLE "+f.sql("{entry}")), 1)
		if f.db.Name == testdb.SQLServer {
			f.Len(f.lacksRightTo(member, "DELETE FROM "+f.sql("{entry}")), 1, "the procedures are the only way")
		}
	})
}

func TestInbox_BadConfigurations(t *testing.T) {
	forEachEmpty(t, func(t *testing.T, f *fixture) {
		_, err := inbox.New(f.db.DB, inbox.Config{}, nil)
		f.requireField(err, "Dialect")
		f.requireField(inbox.Migrate(f.ctx(), f.db.DB, inbox.Config{}), "Dialect")
		_, err = inbox.NewSubscriber(f.db.DB, outbox.SubscriberConfig{}, nil)
		f.requireField(err, "SubscriberConfig.Dialect")
		_, err = inbox.New(f.db.DB, inbox.Config{Dialect: f.config.Dialect, Table: " x"}, nil)
		f.requireField(err, "Table")
		_, err = inbox.New(f.db.DB, inbox.Config{Dialect: f.config.Dialect, WorkerName: strings.Repeat("w", 101)}, nil)
		f.requireField(err, "WorkerName")
		_, err = inbox.New(nil, inbox.Config{Dialect: f.config.Dialect}, nil)
		f.ErrorIs(err, base.ErrNilDB)
		f.ErrorIs(inbox.Migrate(f.ctx(), nil, inbox.Config{Dialect: f.config.Dialect}), base.ErrNilDB)
		f.Empty(f.names("table"))
	})
}
