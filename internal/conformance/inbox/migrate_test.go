package inbox_test

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
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/testdb"
)

func TestInbox_MigrateCheckAndScript(t *testing.T) {
	suite.ForEachEmpty(t, func(t *testing.T, f *suite.Fixture) {
		config := inbox.Config{Dialect: f.Config.Dialect, Schema: f.Config.Schema}
		if f.Lacks(suite.ErrorNumbers) == "" {
			f.ErrorIs(inbox.Check(f.Context(), f.DB.DB, config), outbox.ErrSchema)
		}
		f.NoError(inbox.Migrate(f.Context(), f.DB.DB, config))
		catalog := f.Catalog()
		f.NoError(inbox.Migrate(f.Context(), f.DB.DB, config))
		f.SameCatalog(catalog, f.Catalog())
		f.Subset(suite.Lower(f.Names("table")), suite.Lower([]string{"Inbox", f.Either("inbox_entry", "InboxEntry")}))
		for _, name := range suite.Lower(f.Names("table")) {
			f.NotContains(name, "join")
		}
		if f.Config.Dialect.Traits().Procedures && f.DB.Name == testdb.SQLServer {
			f.Subset(suite.Lower(f.Names("procedure")), suite.Lower([]string{"Inbox_Claim", "Inbox_Ack", "Inbox_Abandon", "Inbox_Fail", "Inbox_Reap", "Inbox_Entry_Add"}))
		}

		at := f.On(f.Another())
		script, err := inbox.MigrationSQL(inbox.Config{Dialect: at.Config.Dialect, Schema: at.Config.Schema})
		f.NoError(err)
		f.NoError(at.Run(script))
		f.NoError(at.Run(script))
		f.SameCatalog(catalog, at.Catalog())

		if f.DB.Name == testdb.SQLServer {
			f.Needs(suite.IndexNames, suite.Level130)
		}
		f.NoError(inbox.Check(f.Context(), f.DB.DB, config))
		f.Config.Table = f.Either("inbox", "Inbox")
		f.Exec("DROP INDEX %s", f.Either(f.Config.Dialect.Quote(f.Schema())+".inbox_entry_last_seen", "IX_InboxEntry_LastSeenAt ON "+f.SQL("{entry}")))
		err = inbox.Check(f.Context(), f.DB.DB, config)
		f.ErrorIs(err, outbox.ErrSchema)
		f.ErrorContains(err, f.Either("inbox_entry_last_seen", "IX_InboxEntry_LastSeenAt"))

		with := config
		with.WithJoins = true
		f.ErrorContains(inbox.Check(f.Context(), f.DB.DB, with), f.Either("inbox_join", "InboxJoin"))
		f.NoError(inbox.Migrate(f.Context(), f.DB.DB, with))
		f.Outbox = f.NewOutbox(f.DB.DB)
		f.JoinsWork()
	})
}

// An outbox has nothing of an inbox, works as before, and says what to do; the inbox's table can come later.
func TestInbox_WithoutItTheOutboxWorksAsBefore(t *testing.T) {
	suite.ForEach(t, func(t *testing.T, f *suite.Fixture) {
		for _, name := range suite.Lower(append(f.Names("table"), f.Names("view")...)) {
			f.NotContains(name, "entry")
		}
		f.Works()
		config := inbox.Config{Dialect: f.Config.Dialect, Schema: f.Config.Schema, Table: f.Config.Dialect.Traits().Table, WithJoins: true}
		in, err := inbox.New(f.DB.DB, config, nil)
		f.NoError(err)
		if f.DB.Name != testdb.SQLServer || f.Lacks(suite.ErrorNumbers) == "" {
			for name, call := range map[string]func() error{
				"begin": func() error {
					return outbox.InTx(f.Context(), f.DB.DB, func(ctx context.Context, tx *sql.Tx) error {
						_, err := in.Begin(ctx, tx, suite.KeyOf("1"), inbox.Hash{})
						return err
					})
				},
				"save": func() error {
					return outbox.InTx(f.Context(), f.DB.DB, func(ctx context.Context, tx *sql.Tx) error { return in.SaveResult(ctx, tx, suite.KeyOf("1"), nil) })
				},
				"enqueue": func() error { _, err := in.Enqueue(f.Context(), nil, suite.ReceivedOf("1", "")); return err },
				"get":     func() error { _, err := in.Get(f.Context(), suite.KeyOf("1")); return err },
				"requeue": func() error { _, err := in.Requeue(f.Context(), suite.KeyOf("1")); return err },
				"purge":   func() error { _, err := in.Purge(f.Context(), outbox.PurgeParams{}); return err },
			} {
				f.ErrorIs(call(), outbox.ErrSchema, name)
			}
		}
		f.Zero(f.Count())
		f.ErrorContains(inbox.Check(f.Context(), f.DB.DB, config), f.Either("outbox_entry", "OutboxEntry"))

		f.NoError(inbox.Migrate(f.Context(), f.DB.DB, config))
		_, err = in.Enqueue(f.Context(), nil, suite.ReceivedOf("1", ""))
		f.NoError(err)
		f.Migrate() // of the outbox alone: does no harm
		_, err = in.Enqueue(f.Context(), nil, suite.ReceivedOf("1", ""))
		f.NoError(err)
		f.Len(f.Claim("ship"), 1)
		f.Clear()
		f.Works()
	})
}

func TestTrap_InboxNamesOfAnyKind(t *testing.T) {
	suite.ForEachEmpty(t, func(t *testing.T, f *suite.Fixture) {
		names := []string{`]"'`, `?1 $1 @p1`, "a.b c", "Grüße 🙂", "entry", "outbox_entry"}
		for _, name := range names {
			t.Run(name, func(t *testing.T) {
				g := suite.New(t, f.DB, name)
				g.Needs(suite.Named("", name))
				g.Exec("DROP TABLE IF EXISTS %s", g.Object("effects")) // of the inbox before it in the same schema
				(&inboxFixture{suite.NewInboxFixture(g, name)}).everything()
			})
		}
		if f.Config.Dialect.Traits().FixedSchema {
			return
		}
		t.Run("schema", func(t *testing.T) {
			schema := `x]"y' ` + f.Config.Schema
			g := suite.New(t, f.DB, "its own")
			g.Needs(suite.Named(schema, "its own"))
			g.InSchema(schema)
			(&inboxFixture{suite.NewInboxFixture(g, "its own")}).everything()
		})
	})
}

// everything goes once through all that an inbox can do.
func (f *inboxFixture) everything() {
	f.T.Helper()
	handle := f.Guarded(f.In, func(msg *message.Message) ([]*message.Message, error) {
		return []*message.Message{message.NewMessage("next", nil)}, f.Effect(msg.Context(), 1)
	})
	for range 2 {
		produced, err := handle(f.Coming("1", "order"))
		f.NoError(err)
		f.Len(produced, 1)
	}
	f.Equal(1, f.CountEffects())
	f.Received("2")
	_, err := f.In.Enqueue(f.Context(), nil, suite.ReceivedOf("2", "payload of 2"))
	f.NoError(err)
	f.Settle(suite.Settled(outbox.Fail, f.Claim("ship")...)...)
	n, err := f.In.Requeue(f.Context(), suite.KeyOf("2"))
	f.NoError(err)
	f.Equal(1, n)
	f.Equal("ready", f.state("2"))
	f.Settle(suite.Settled(outbox.Ack, f.Claim("ship")...)...)
	f.Exec("UPDATE {entry} SET {first_seen_at} = {past}, {last_seen_at} = {past}")
	f.Exec("UPDATE {outbox} SET {created_at} = {past}")
	f.ExecStates("UPDATE {outbox_state} SET {processed_at} = {past}")
	n, err = f.In.Purge(f.Context(), outbox.PurgeParams{})
	f.NoError(err)
	f.Equal(2, n)
	f.Zero(f.Count() + f.CountEntries())
}

// The role that suffices for messages suffices for an inbox.
func TestInbox_TheRoleSuffices(t *testing.T) {
	suite.ForEachEmpty(t, func(t *testing.T, base *suite.Fixture) {
		base.Needs(suite.ExecuteAs)
		f := suite.NewInboxFixture(base, "in_"+base.Config.Schema)
		script, err := inbox.RoleSQL(f.InboxConfig(f.Config.Table))
		f.NoError(err)
		f.NoError(f.Run(script))
		f.NoError(f.Run(script))
		role := f.Schema() + "_" + f.Config.Table + f.Either("_role", "_Role")
		member, stranger := f.User(role), f.User("")
		t.Cleanup(func() {
			if f.DB.Name == testdb.Postgres {
				f.Drop("DROP OWNED BY " + role)
			}
			f.Drop("DROP ROLE " + role)
		})
		f.Received("2")
		f.Settle(suite.Settled(outbox.Ack, f.Claim("ship")...)...)
		const key = `"n":0,"source":"shop","message_id":"1","handler":"ship"`
		calls := []string{
			f.CallOf("entry_add", fmt.Sprintf(`{"entries":[{%s,"hash":"%s"}]}`, key, inbox.Hash{})),
			f.CallOf("entry_save", "{"+key+"}", f.Either("''", "0x")),
			f.CallOf("entry_get", `{"entries":[{`+key+`}]}`),
			"SELECT COUNT(*) FROM " + f.SQL("{entry_view}"),
			f.CallOf("entry_purge", `{"status":2,"older_than_ms":-60000,"limit":10}`),
		}
		f.Len(f.LacksRightTo(stranger, calls...), len(calls))
		f.Equal(1, f.CountEntries())
		f.Empty(f.LacksRightTo(member, calls...))
		f.Zero(f.CountEntries() + f.Count())
		f.Len(f.LacksRightTo(member, "DROP TABLE "+f.SQL("{entry}")), 1)
		if f.DB.Name == testdb.SQLServer {
			f.Len(f.LacksRightTo(member, "DELETE FROM "+f.SQL("{entry}")), 1, "the procedures are the only way")
		}
	})
}

func TestInbox_BadConfigurations(t *testing.T) {
	suite.ForEachEmpty(t, func(t *testing.T, f *suite.Fixture) {
		_, err := inbox.New(f.DB.DB, inbox.Config{}, nil)
		f.RequireField(err, "Config.Dialect")
		f.RequireField(inbox.Migrate(f.Context(), f.DB.DB, inbox.Config{}), "Config.Dialect")
		f.RequireField(inbox.Check(f.Context(), f.DB.DB, inbox.Config{}), "Config.Dialect")
		_, err = inbox.MigrationSQL(inbox.Config{})
		f.RequireField(err, "Config.Dialect")
		_, err = inbox.RoleSQL(inbox.Config{})
		f.RequireField(err, "Config.Dialect")
		_, err = inbox.NewSubscriber(f.DB.DB, outbox.SubscriberConfig{}, nil)
		f.RequireField(err, "SubscriberConfig.Dialect")
		_, err = inbox.New(f.DB.DB, inbox.Config{Dialect: f.Config.Dialect, Table: " x"}, nil)
		f.RequireField(err, "Config.Table")
		_, err = inbox.New(f.DB.DB, inbox.Config{Dialect: f.Config.Dialect, WorkerName: strings.Repeat("w", 101)}, nil)
		f.RequireField(err, "Config.WorkerName")
		_, err = inbox.New(nil, inbox.Config{Dialect: f.Config.Dialect}, nil)
		f.ErrorIs(err, base.ErrNilDB)
		f.ErrorIs(inbox.Migrate(f.Context(), nil, inbox.Config{Dialect: f.Config.Dialect}), base.ErrNilDB)
		f.Empty(f.Names("table"))
	})
}
