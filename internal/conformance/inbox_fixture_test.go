package conformance

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

// An inboxFixture is an inbox under its default name, and a table for what handlers do. The fixture's outbox is its queue.
type inboxFixture struct {
	*fixture
	in *inbox.Inbox
}

// forEachInbox runs a test on every database, on an installed inbox, and checks the invariants when it ends.
func forEachInbox(t *testing.T, test func(t *testing.T, f *inboxFixture)) {
	t.Helper()
	forEachEmpty(t, func(t *testing.T, f *fixture) {
		test(t, newInboxFixture(f, ""))
	})
}

func newInboxFixture(base *fixture, table string) *inboxFixture {
	base.t.Helper()
	if table == "" {
		base.config.Table = base.either("inbox", "Inbox")
	} else {
		base.config.Table = table
	}
	base.withInbox, base.withoutJoins = true, true
	base.outbox = base.newOutbox(base.db.DB)
	f := &inboxFixture{fixture: base}
	f.in = f.open(f.db.DB, table, nil)
	base.NoError(inbox.Migrate(base.ctx(), base.db.DB, f.inboxConfig(table)))
	f.exec("CREATE TABLE %s (id INT NOT NULL)", f.effects())
	base.t.Cleanup(f.checkEntries)
	return f
}

func (f *inboxFixture) inboxConfig(table string) inbox.Config {
	return inbox.Config{Dialect: f.config.Dialect, Schema: f.config.Schema, Table: table}
}

// open returns the inbox over another pool.
func (f *inboxFixture) open(db *sql.DB, table string, logger watermill.LoggerAdapter) *inbox.Inbox {
	f.t.Helper()
	in, err := inbox.New(db, f.inboxConfig(table), logger)
	f.NoError(err)
	return in
}

// inboxTables are the names of the tables of entries, in the statements of tests and as they are.
var inboxTables = map[string][2]string{
	"entry":      {"outbox_entry", "OutboxEntry"},
	"entry_view": {"outbox_entry_view", "OutboxEntry_View"},
}

func (f *fixture) inboxName(name string) (text string, ok bool) {
	names, ok := inboxTables[name]
	return f.object(f.either(names[0], names[1])), ok
}

// The invariants of entries. Each is a condition that no row e may fulfil.
var entryInvariants = map[string]string{
	"an entry has been seen":                         "{seen} < 1",
	"nothing is seen last before it is seen first":   "{last_seen_at} < {first_seen_at}",
	"what has no message in the queue was processed": "{queue_id} IS NULL AND {processed_at} IS NULL",
	"a key has one entry": "EXISTS (SELECT 1 FROM {entry} o WHERE o.{seq} <> e.{seq} AND o.{source} = e.{source}" +
		" AND o.{handler} = e.{handler} AND o.{message_id} = e.{message_id})",
}

func (f *inboxFixture) checkEntries() {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for name, broken := range entryInvariants {
		var n int
		if err := f.db.QueryRowContext(ctx, f.sql("SELECT COUNT(*) FROM {entry} e WHERE %s", broken)).Scan(&n); err != nil {
			f.t.Errorf("checking that %s: %v", name, err)
		} else if n != 0 {
			f.t.Errorf("it does not hold that %s: %d entries", name, n)
		}
	}
}

// effects is the table of what handlers have done.
func (f *inboxFixture) effects() string { return f.object("effects") }

// effect writes that a handler has run.
func (f *inboxFixture) effect(ctx context.Context, id int) error {
	tx, ok := outbox.TxFrom(ctx)
	if !ok {
		return fmt.Errorf("the handler finds no transaction")
	}
	_, err := tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO %s (id) VALUES (%d)", f.effects(), id))
	return err
}

func (f *inboxFixture) countEffects() int {
	f.t.Helper()
	return int(f.number("SELECT COUNT(*) FROM %s", f.effects()))
}

func (f *inboxFixture) countEntries() int {
	f.t.Helper()
	return int(f.number("SELECT COUNT(*) FROM {entry}"))
}

// identity is that of most tests.
var identity = inbox.Identity{Source: "shop", Handler: "ship"}

func keyOf(id string) inbox.Key {
	return inbox.Key{Source: "shop", MessageID: id, Handler: "ship"}
}

// guarded puts the middleware around a handler.
func (f *inboxFixture) guarded(in *inbox.Inbox, h message.HandlerFunc) message.HandlerFunc {
	f.t.Helper()
	once, err := middleware.Inbox(in, identity)
	f.NoError(err)
	return once(h)
}

// ship is a handler that has an effect and counts its calls.
func (f *inboxFixture) ship(calls *atomic.Int32) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		calls.Add(1)
		return nil, f.effect(msg.Context(), 1)
	}
}

// coming is a message as a broker delivers it; each delivery is a new one.
func (f *inboxFixture) coming(id, payload string) *message.Message {
	msg := message.NewMessage(id, []byte(payload))
	msg.SetContext(f.ctx())
	return msg
}

// entry reads one entry.
func (f *inboxFixture) entry(key inbox.Key) inbox.Entry {
	f.t.Helper()
	entries, err := f.in.Get(f.ctx(), key)
	f.NoError(err)
	f.Len(entries, 1)
	return entries[0]
}

// inTx runs a function in a transaction and commits it.
func (f *inboxFixture) inTx(call func(tx *sql.Tx) error) error {
	f.t.Helper()
	return outbox.InTx(f.ctx(), f.db.DB, func(_ context.Context, tx *sql.Tx) error { return call(tx) })
}

// receivedOf is a message to be worked on later.
func receivedOf(id, payload string) inbox.Received {
	return inbox.Received{Key: keyOf(id), Message: outbox.Message{UUID: id, Payload: []byte(payload)}}
}

// received enqueues messages that are new, and returns their ids in the queue.
func (f *inboxFixture) received(ids ...string) []outbox.MessageID {
	f.t.Helper()
	var list []inbox.Received
	for _, id := range ids {
		list = append(list, receivedOf(id, "payload of "+id))
	}
	queued, err := f.in.Enqueue(f.ctx(), nil, list...)
	f.NoError(err)
	f.NotContains(queued, outbox.MessageID{})
	return queued
}
