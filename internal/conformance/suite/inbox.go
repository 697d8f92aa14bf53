package suite

import (
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/inbox"
	"github.com/incursa/watermill-outbox/middleware"
)

// An InboxFixture is an inbox under its default name, and a table for what handlers do. The fixture's outbox is its queue.
type InboxFixture struct {
	*Fixture
	In *inbox.Inbox
}

// ForEachInbox runs a test on every database, on an installed inbox, and checks the invariants when it ends.
func ForEachInbox(t *testing.T, test func(t *testing.T, f *InboxFixture)) {
	t.Helper()
	ForEachEmpty(t, func(t *testing.T, f *Fixture) {
		test(t, NewInboxFixture(f, ""))
	})
}

// NewInboxFixture installs an inbox in place of the outbox, under its default name if table is empty.
func NewInboxFixture(base *Fixture, table string) *InboxFixture {
	base.T.Helper()
	if table == "" {
		base.Config.Table = base.Either("inbox", "Inbox")
	} else {
		base.Config.Table = table
	}
	base.WithInbox, base.WithoutJoins = true, true
	base.Outbox = base.NewOutbox(base.DB.DB)
	f := &InboxFixture{Fixture: base}
	f.In = f.Open(f.DB.DB, table, nil)
	base.NoError(inbox.Migrate(base.Context(), base.DB.DB, f.InboxConfig(table)))
	f.Exec("%s", statement("create_effects"))
	base.T.Cleanup(f.checkEntries)
	return f
}

// InboxConfig is that of an inbox of another name.
func (f *InboxFixture) InboxConfig(table string) inbox.Config {
	return inbox.Config{Dialect: f.Config.Dialect, Schema: f.Config.Schema, Table: table}
}

// Open returns the inbox over another pool.
func (f *InboxFixture) Open(db *sql.DB, table string, logger watermill.LoggerAdapter) *inbox.Inbox {
	f.T.Helper()
	in, err := inbox.New(db, f.InboxConfig(table), logger)
	f.NoError(err)
	return in
}

// inboxTables are the names of the tables of entries, and of what handlers have done, in the statements of tests and as they are.
var inboxTables = map[string][2]string{
	"entry":      {"outbox_entry", "OutboxEntry"},
	"entry_view": {"outbox_entry_view", "OutboxEntry_View"},
	"effects":    {"effects", "effects"},
}

func (f *Fixture) inboxName(name string) (text string, ok bool) {
	names, ok := inboxTables[name]
	return f.Object(f.Either(names[0], names[1])), ok
}

func (f *InboxFixture) checkEntries() {
	f.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	f.checkAll(ctx, "entries")
}

// Effects is the table of what handlers have done.
func (f *InboxFixture) Effects() string { return f.Object("effects") }

// Effect writes that a handler has run.
func (f *InboxFixture) Effect(ctx context.Context, id int) error {
	tx, ok := outbox.TxFrom(ctx)
	if !ok {
		return fmt.Errorf("the handler finds no transaction")
	}
	_, err := tx.ExecContext(ctx, f.SQL(statement("add_effect"), id))
	return err
}

// CountEffects is how many effects handlers have had.
func (f *InboxFixture) CountEffects() int {
	f.T.Helper()
	return int(f.Number("%s", statement("count_effects")))
}

// CountEntries is how many messages the inbox knows.
func (f *InboxFixture) CountEntries() int {
	f.T.Helper()
	return int(f.Number("%s", statement("count_entries")))
}

// Identity is that of most tests.
var Identity = inbox.Identity{Source: "shop", Handler: "ship"}

// KeyOf is the key of a message of most tests.
func KeyOf(id string) inbox.Key {
	return inbox.Key{Source: "shop", MessageID: id, Handler: "ship"}
}

// Guarded puts the middleware around a handler.
func (f *InboxFixture) Guarded(in *inbox.Inbox, h message.HandlerFunc) message.HandlerFunc {
	f.T.Helper()
	once, err := middleware.Inbox(in, Identity)
	f.NoError(err)
	return once(h)
}

// Ship is a handler that has an effect and counts its calls.
func (f *InboxFixture) Ship(calls *atomic.Int32) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		calls.Add(1)
		return nil, f.Effect(msg.Context(), 1)
	}
}

// Coming is a message as a broker delivers it; each delivery is a new one.
func (f *InboxFixture) Coming(id, payload string) *message.Message {
	msg := message.NewMessage(id, []byte(payload))
	msg.SetContext(f.Context())
	return msg
}

// Entry reads one entry.
func (f *InboxFixture) Entry(key inbox.Key) inbox.Entry {
	f.T.Helper()
	entries, err := f.In.Get(f.Context(), key)
	f.NoError(err)
	f.Len(entries, 1)
	return entries[0]
}

// InTx runs a function in a transaction and commits it.
func (f *InboxFixture) InTx(call func(tx *sql.Tx) error) error {
	f.T.Helper()
	return outbox.InTx(f.Context(), f.DB.DB, func(_ context.Context, tx *sql.Tx) error { return call(tx) })
}

// ReceivedOf is a message to be worked on later.
func ReceivedOf(id, payload string) inbox.Received {
	return inbox.Received{Key: KeyOf(id), Message: outbox.Message{UUID: id, Payload: []byte(payload)}}
}

// Received enqueues messages that are new, and returns their ids in the queue.
func (f *InboxFixture) Received(ids ...string) []outbox.MessageID {
	f.T.Helper()
	var list []inbox.Received
	for _, id := range ids {
		list = append(list, ReceivedOf(id, "payload of "+id))
	}
	queued, err := f.In.Enqueue(f.Context(), nil, list...)
	f.NoError(err)
	f.NotContains(queued, outbox.MessageID{})
	return queued
}
