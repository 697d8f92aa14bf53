package conformance

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/inbox"
	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/faults"
	"github.com/incursa/watermill-outbox/internal/testdb"
)

// begin enters a message whose content is its id.
func (f *inboxFixture) begin(tx *sql.Tx, id string) (inbox.Entry, error) {
	return f.in.Begin(f.ctx(), tx, keyOf(id), inbox.HashOf([]byte("payload of "+id)))
}

// write is an effect without a handler.
func (f *inboxFixture) write(tx *sql.Tx, id int) error {
	return f.effect(outbox.WithTx(f.ctx(), tx), id)
}

func TestTrap_InboxADuplicateDoesNotDoomTheTransaction(t *testing.T) {
	forEachInbox(t, func(t *testing.T, f *inboxFixture) {
		f.NoError(f.inTx(func(tx *sql.Tx) error {
			e, err := f.begin(tx, "1")
			f.True(e.First())
			return err
		}))
		f.received("2")
		f.NoError(f.inTx(func(tx *sql.Tx) error {
			f.NoError(f.write(tx, 1))
			e, err := f.begin(tx, "1")
			f.NoError(err)
			f.Equal([]any{false, 2, outbox.Done}, []any{e.First(), e.Seen, e.Status})
			f.NoError(f.write(tx, 2))
			ids, err := f.in.Enqueue(f.ctx(), tx, receivedOf("1", "payload of 1"), receivedOf("2", "payload of 2"), receivedOf("3", ""))
			f.NoError(err)
			f.Equal([]bool{true, true, false}, []bool{ids[0] == outbox.MessageID{}, ids[1] == outbox.MessageID{}, ids[2] == outbox.MessageID{}})
			_, err = f.in.Enqueue(f.ctx(), tx, receivedOf("4", ""), receivedOf("1", "other"))
			f.ErrorIs(err, inbox.ErrContentMismatch, "this one takes back what it did, and no more")
			_, err = f.in.Begin(f.ctx(), tx, keyOf("2"), inbox.Hash{})
			f.ErrorIs(err, inbox.ErrContentMismatch)
			return f.write(tx, 3)
		}))
		f.Equal(3, f.countEffects())
		f.Equal(3, f.countEntries())
		f.Len(f.claim("ship"), 2)
	})
}

// Two transactions come upon one key: the second waits for the first, and goes on either way.
func TestTrap_InboxADuplicateWaitsForTheFirst(t *testing.T) {
	forEachInbox(t, func(t *testing.T, f *inboxFixture) {
		for id, commits := range map[string]bool{"1": true, "2": false} {
			first, err := f.db.BeginTx(f.ctx(), nil)
			f.NoError(err)
			defer func() { _ = first.Rollback() }()
			_, err = f.begin(first, id)
			f.NoError(err)

			began := make(chan struct{}, 10)
			pool := faults.Open(t, f.db, faults.Hooks{Before: func(context.Context, faults.Statement) error {
				began <- struct{}{}
				return nil
			}})
			in := f.open(pool, "", nil)
			type answer struct {
				first bool
				err   error
			}
			second := make(chan answer, 1)
			go func() {
				var e inbox.Entry
				err := outbox.InTx(f.ctx(), pool, func(ctx context.Context, tx *sql.Tx) (err error) {
					if e, err = in.Begin(ctx, tx, keyOf(id), inbox.HashOf([]byte("payload of "+id))); err != nil {
						return err
					}
					return f.write(tx, 1)
				})
				second <- answer{e.First(), err}
			}()
			take(f.fixture, began, "the other transaction")
			if f.db.Name != testdb.SQLite { // where it begins once the first has ended
				take(f.fixture, began, "the other entry")
			}
			if commits {
				f.NoError(first.Commit())
			} else {
				f.NoError(first.Rollback())
			}
			got, _ := take(f.fixture, second, "the end of the second")
			f.NoError(got.err)
			f.Equal(!commits, got.first)
		}
		f.Equal(2, f.countEffects())
	})
}

// In a transaction that cannot see what was committed since it began, a duplicate is found or the transaction is to be run again.
func TestTrap_InboxADuplicateThatTheSnapshotDoesNotSee(t *testing.T) {
	forEachInbox(t, func(t *testing.T, f *inboxFixture) {
		if f.db.Name == testdb.SQLite {
			f.skip("snapshots of the past that can be written to", "there is one writer")
		}
		f.needs(readsCommitted)
		for _, level := range []sql.IsolationLevel{sql.LevelRepeatableRead, sql.LevelSerializable} {
			id := level.String()
			tx, err := f.db.BeginTx(f.ctx(), &sql.TxOptions{Isolation: level})
			f.NoError(err)
			var n int
			f.NoError(tx.QueryRowContext(f.ctx(), f.sql("SELECT COUNT(*) FROM {all}")).Scan(&n)) // takes the snapshot
			f.NoError(f.inTx(func(tx *sql.Tx) error { _, err := f.begin(tx, id); return err }))
			e, err := f.begin(tx, id)
			if err == nil {
				f.False(e.First())
			} else {
				f.True(outbox.IsRetryable(err), "%v", err)
			}
			f.NoError(tx.Rollback())
		}
	})
}

func TestInbox_BeginAndSaveResult(t *testing.T) {
	forEachInbox(t, func(t *testing.T, f *inboxFixture) {
		from := f.now()
		f.NoError(f.inTx(func(tx *sql.Tx) error {
			e, err := f.begin(tx, "1")
			f.NoError(err)
			f.True(e.First())
			f.Equal(keyOf("1"), e.Key)
			return f.in.SaveResult(f.ctx(), tx, keyOf("1"), []byte{0, 255})
		}))
		e := f.entry(keyOf("1"))
		f.Equal([]byte{0, 255}, e.Result)
		f.Equal([]any{1, 0, "", outbox.Done}, []any{e.Seen, e.Attempts, e.LastError, e.Status})
		f.between(from, f.now(), e.FirstSeenAt)
		f.sameTime(e.FirstSeenAt, e.LastSeenAt)
		f.sameTime(e.FirstSeenAt, e.ProcessedAt)

		f.exec("UPDATE {entry} SET {first_seen_at} = {past}, {last_seen_at} = {past}, {processed_at} = {past}")
		from = f.now()
		f.NoError(f.inTx(func(tx *sql.Tx) error { _, err := f.begin(tx, "1"); return err }))
		again := f.entry(keyOf("1"))
		f.Equal(2, again.Seen)
		f.between(from, f.now(), again.LastSeenAt)
		f.WithinDuration(from.Add(-time.Hour), again.FirstSeenAt, time.Minute)
		f.sameTime(again.FirstSeenAt, again.ProcessedAt)
		f.Equal(e.Result, again.Result)

		f.NoError(f.inTx(func(tx *sql.Tx) error { return f.in.SaveResult(f.ctx(), tx, keyOf("1"), nil) }))
		f.Empty(f.entry(keyOf("1")).Result)
		f.ErrorIs(f.inTx(func(tx *sql.Tx) error { return f.in.SaveResult(f.ctx(), tx, keyOf("2"), nil) }), inbox.ErrNotFound)
		f.ErrorIs(f.in.SaveResult(f.ctx(), nil, keyOf("1"), nil), base.ErrNilDB)
		_, err := f.in.Begin(f.ctx(), nil, keyOf("1"), inbox.Hash{})
		f.ErrorIs(err, base.ErrNilDB)
		entries, err := f.in.Get(f.ctx(), keyOf("x"), keyOf("1"), keyOf("y"))
		f.NoError(err)
		f.Len(entries, 1)
	})
}

// A second message under the key of another is reported by every way in, and nothing of it is kept.
func TestTrap_InboxAnotherContentUnderTheSameKeyIsReported(t *testing.T) {
	forEachInbox(t, func(t *testing.T, f *inboxFixture) {
		book := newLogBook()
		in := f.open(f.db.DB, "", book)
		receive, err := in.Receive(identity)
		f.NoError(err)
		ways := map[string]func(payload string) error{
			"middleware": func(payload string) error {
				_, err := f.guarded(in, func(*message.Message) ([]*message.Message, error) { return nil, nil })(f.coming("1", payload))
				return err
			},
			"begin": func(payload string) error {
				return f.inTx(func(tx *sql.Tx) error {
					_, err := in.Begin(f.ctx(), tx, keyOf("1"), inbox.HashOf([]byte(payload)))
					return err
				})
			},
			"enqueue": func(payload string) error {
				_, err := in.Enqueue(f.ctx(), nil, receivedOf("new", "new"), receivedOf("1", payload))
				return err
			},
			"receive": func(payload string) error { return receive(f.coming("1", payload)) },
		}
		f.NoError(ways["middleware"]("order"))
		for name, way := range ways {
			err := way("another order")
			var mismatch *inbox.MismatchError
			f.ErrorAs(err, &mismatch, name)
			f.ErrorIs(err, inbox.ErrContentMismatch)
			f.True(outbox.IsPermanent(err), name)
			f.Equal(inbox.MismatchError{Key: keyOf("1"), Known: inbox.HashOf([]byte("order")), Received: inbox.HashOf([]byte("another order"))}, *mismatch)
			f.ErrorContains(err, `"1" from "shop" for "ship"`)
		}
		f.Len(book.at("ERROR", "different content"), len(ways))
		for _, line := range book.lines() {
			f.NotContains(line.String(), "another order", "payloads are not logged")
		}
		f.Equal(1, f.countEntries())
		f.Equal(1, f.entry(keyOf("1")).Seen)
		f.Zero(f.count())
		_, err = in.Enqueue(f.ctx(), nil, receivedOf("2", "a"), receivedOf("2", "b"))
		f.ErrorIs(err, inbox.ErrContentMismatch, "also within a call")
		f.Equal(1, f.countEntries())
		for _, way := range ways {
			f.NoError(way("order"))
		}
	})
}

// Keys are compared as they are, and refused where databases differ about them.
func TestTrap_InboxKeys(t *testing.T) {
	forEachInbox(t, func(t *testing.T, f *inboxFixture) {
		long := strings.Repeat("€", 255) // three bytes each
		parts := []string{"a", "A", "ä", "a\u0308", "🙂", "🙃", "a b", "a  b", "ß", "ss", "ı", "i", "I", "İ", "%", "_", "'", `"`, "NULL", "1", "01", "1.0", "{}", `\`, long, strings.Repeat("🙂", 127)}
		if f.lacks(unescapesJSON) != "" {
			parts = []string{"a", "A", "a b", "a  b", "ss", "i", "I", "%", "_", "NULL", "1", "01", "1.0", long}
		}
		var keys []inbox.Key
		for _, p := range parts {
			keys = append(keys, inbox.Key{Source: p, MessageID: "x", Handler: "y"}, inbox.Key{Source: "x", MessageID: p, Handler: "y"},
				inbox.Key{Source: "x", MessageID: "y", Handler: p})
		}
		keys = append(keys, inbox.Key{Source: long, MessageID: long, Handler: long})
		for i, key := range keys {
			ids, err := f.in.Enqueue(f.ctx(), nil, inbox.Received{Key: key, Message: outbox.Message{Payload: []byte{byte(i)}}})
			f.NoError(err, "%v", key)
			f.NotEqual(outbox.MessageID{}, ids[0], "%v is new", key)
		}
		entries, err := f.in.Get(f.ctx(), keys...)
		f.NoError(err)
		f.Len(entries, len(keys))
		for i, e := range entries {
			f.Equal(keys[i], e.Key)
			f.Equal(inbox.HashOf([]byte{byte(i)}), e.Hash)
		}
		f.Equal(len(keys), f.countEntries())

		for field, set := range map[string]func(*inbox.Key, string){
			"Key.Source":    func(k *inbox.Key, text string) { k.Source = text },
			"Key.MessageID": func(k *inbox.Key, text string) { k.MessageID = text },
			"Key.Handler":   func(k *inbox.Key, text string) { k.Handler = text },
		} {
			for _, bad := range []string{"", " ", "a ", " a", "a\t", "a\u00a0", "a\x00b", "\xff", strings.Repeat("a", 256), strings.Repeat("🙂", 128)} {
				key := keyOf("bad")
				set(&key, bad)
				_, err := f.in.Enqueue(f.ctx(), nil, receivedOf("good", ""), inbox.Received{Key: key})
				f.requireField(err, field)
				f.requireField(f.inTx(func(tx *sql.Tx) error { _, err := f.in.Begin(f.ctx(), tx, key, inbox.Hash{}); return err }), field)
				f.requireField(f.inTx(func(tx *sql.Tx) error { return f.in.SaveResult(f.ctx(), tx, key, nil) }), field)
				_, err = f.in.Get(f.ctx(), key)
				f.requireField(err, field)
				_, err = f.in.Requeue(f.ctx(), key)
				f.requireField(err, field)
			}
		}
		_, err = f.in.Enqueue(f.ctx(), nil, inbox.Received{Key: keyOf("new"), Message: outbox.Message{Headers: map[string]string{"a": "\xff"}}})
		f.requireField(err, "Headers")
		f.Equal(len(keys), f.countEntries(), "nothing of a refused call is kept")
	})
}
