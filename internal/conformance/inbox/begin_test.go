package inbox_test

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
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/faults"
	"github.com/incursa/watermill-outbox/internal/testdb"
)

// begin enters a message whose content is its id.
func (f *inboxFixture) begin(tx *sql.Tx, id string) (inbox.Entry, error) {
	return f.In.Begin(f.Context(), tx, suite.KeyOf(id), inbox.HashOf([]byte("payload of "+id)))
}

// write is an effect without a handler.
func (f *inboxFixture) write(tx *sql.Tx, id int) error {
	return f.Effect(outbox.WithTx(f.Context(), tx), id)
}

func TestTrap_InboxADuplicateDoesNotDoomTheTransaction(t *testing.T) {
	forEachInbox(t, func(t *testing.T, f *inboxFixture) {
		f.NoError(f.InTx(func(tx *sql.Tx) error {
			e, err := f.begin(tx, "1")
			f.True(e.First())
			return err
		}))
		f.Received("2")
		f.NoError(f.InTx(func(tx *sql.Tx) error {
			f.NoError(f.write(tx, 1))
			e, err := f.begin(tx, "1")
			f.NoError(err)
			f.Equal([]any{false, 2, outbox.Done}, []any{e.First(), e.Seen, e.Status})
			f.NoError(f.write(tx, 2))
			ids, err := f.In.Enqueue(f.Context(), tx, suite.ReceivedOf("1", "payload of 1"), suite.ReceivedOf("2", "payload of 2"), suite.ReceivedOf("3", ""))
			f.NoError(err)
			f.Equal([]bool{true, true, false}, []bool{ids[0] == outbox.MessageID{}, ids[1] == outbox.MessageID{}, ids[2] == outbox.MessageID{}})
			_, err = f.In.Enqueue(f.Context(), tx, suite.ReceivedOf("4", ""), suite.ReceivedOf("1", "other"))
			f.ErrorIs(err, inbox.ErrContentMismatch, "this one takes back what it did, and no more")
			_, err = f.In.Begin(f.Context(), tx, suite.KeyOf("2"), inbox.Hash{})
			f.ErrorIs(err, inbox.ErrContentMismatch)
			return f.write(tx, 3)
		}))
		f.Equal(3, f.CountEffects())
		f.Equal(3, f.CountEntries())
		f.Len(f.Claim("ship"), 2)
	})
}

// Two transactions come upon one key: the second waits for the first, and goes on either way.
func TestTrap_InboxADuplicateWaitsForTheFirst(t *testing.T) {
	forEachInbox(t, func(t *testing.T, f *inboxFixture) {
		for id, commits := range map[string]bool{"1": true, "2": false} {
			first, err := f.DB.BeginTx(f.Context(), nil)
			f.NoError(err)
			defer func() { _ = first.Rollback() }()
			_, err = f.begin(first, id)
			f.NoError(err)

			began := make(chan struct{}, 10)
			pool := faults.Open(t, f.DB, faults.Hooks{Before: func(context.Context, faults.Statement) error {
				began <- struct{}{}
				return nil
			}})
			in := f.Open(pool, "", nil)
			type answer struct {
				first bool
				err   error
			}
			second := make(chan answer, 1)
			go func() {
				var e inbox.Entry
				err := outbox.InTx(f.Context(), pool, func(ctx context.Context, tx *sql.Tx) (err error) {
					if e, err = in.Begin(ctx, tx, suite.KeyOf(id), inbox.HashOf([]byte("payload of "+id))); err != nil {
						return err
					}
					return f.write(tx, 1)
				})
				second <- answer{e.First(), err}
			}()
			suite.Take(f.T, began, "the other transaction")
			if f.DB.Name != testdb.SQLite { // where it begins once the first has ended
				suite.Take(f.T, began, "the other entry")
			}
			if commits {
				f.NoError(first.Commit())
			} else {
				f.NoError(first.Rollback())
			}
			got, _ := suite.Take(f.T, second, "the end of the second")
			f.NoError(got.err)
			f.Equal(!commits, got.first)
		}
		f.Equal(2, f.CountEffects())
	})
}

// In a transaction that cannot see what was committed since it began, a duplicate is found or the transaction is to be run again.
func TestTrap_InboxADuplicateThatTheSnapshotDoesNotSee(t *testing.T) {
	forEachInbox(t, func(t *testing.T, f *inboxFixture) {
		if f.DB.Name == testdb.SQLite {
			f.Skip("snapshots of the past that can be written to", "there is one writer")
		}
		f.Needs(suite.ReadsCommitted)
		for _, level := range []sql.IsolationLevel{sql.LevelRepeatableRead, sql.LevelSerializable} {
			id := level.String()
			tx, err := f.DB.BeginTx(f.Context(), &sql.TxOptions{Isolation: level})
			f.NoError(err)
			var n int
			f.NoError(tx.QueryRowContext(f.Context(), f.SQL("SELECT COUNT(*) FROM {all}")).Scan(&n)) // takes the snapshot
			f.NoError(f.InTx(func(tx *sql.Tx) error { _, err := f.begin(tx, id); return err }))
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
		from := f.Now()
		f.NoError(f.InTx(func(tx *sql.Tx) error {
			e, err := f.begin(tx, "1")
			f.NoError(err)
			f.True(e.First())
			f.Equal(suite.KeyOf("1"), e.Key)
			return f.In.SaveResult(f.Context(), tx, suite.KeyOf("1"), []byte{0, 255})
		}))
		e := f.Entry(suite.KeyOf("1"))
		f.Equal([]byte{0, 255}, e.Result)
		f.Equal([]any{1, 0, "", outbox.Done}, []any{e.Seen, e.Attempts, e.LastError, e.Status})
		f.Between(from, f.Now(), e.FirstSeenAt)
		f.SameTime(e.FirstSeenAt, e.LastSeenAt)
		f.SameTime(e.FirstSeenAt, e.ProcessedAt)

		f.Exec("UPDATE {entry} SET {first_seen_at} = {past}, {last_seen_at} = {past}, {processed_at} = {past}")
		from = f.Now()
		f.NoError(f.InTx(func(tx *sql.Tx) error { _, err := f.begin(tx, "1"); return err }))
		again := f.Entry(suite.KeyOf("1"))
		f.Equal(2, again.Seen)
		f.Between(from, f.Now(), again.LastSeenAt)
		f.WithinDuration(from.Add(-time.Hour), again.FirstSeenAt, time.Minute)
		f.SameTime(again.FirstSeenAt, again.ProcessedAt)
		f.Equal(e.Result, again.Result)

		f.NoError(f.InTx(func(tx *sql.Tx) error { return f.In.SaveResult(f.Context(), tx, suite.KeyOf("1"), nil) }))
		f.Empty(f.Entry(suite.KeyOf("1")).Result)
		f.ErrorIs(f.InTx(func(tx *sql.Tx) error { return f.In.SaveResult(f.Context(), tx, suite.KeyOf("2"), nil) }), inbox.ErrNotFound)
		f.ErrorIs(f.In.SaveResult(f.Context(), nil, suite.KeyOf("1"), nil), base.ErrNilDB)
		_, err := f.In.Begin(f.Context(), nil, suite.KeyOf("1"), inbox.Hash{})
		f.ErrorIs(err, base.ErrNilDB)
		entries, err := f.In.Get(f.Context(), suite.KeyOf("x"), suite.KeyOf("1"), suite.KeyOf("y"))
		f.NoError(err)
		f.Len(entries, 1)
	})
}

// A second message under the key of another is reported by every way in, and nothing of it is kept.
func TestTrap_InboxAnotherContentUnderTheSameKeyIsReported(t *testing.T) {
	forEachInbox(t, func(t *testing.T, f *inboxFixture) {
		book := suite.NewLogBook()
		in := f.Open(f.DB.DB, "", book)
		receive, err := in.Receive(suite.Identity)
		f.NoError(err)
		ways := map[string]func(payload string) error{
			"middleware": func(payload string) error {
				_, err := f.Guarded(in, func(*message.Message) ([]*message.Message, error) { return nil, nil })(f.Coming("1", payload))
				return err
			},
			"begin": func(payload string) error {
				return f.InTx(func(tx *sql.Tx) error {
					_, err := in.Begin(f.Context(), tx, suite.KeyOf("1"), inbox.HashOf([]byte(payload)))
					return err
				})
			},
			"enqueue": func(payload string) error {
				_, err := in.Enqueue(f.Context(), nil, suite.ReceivedOf("new", "new"), suite.ReceivedOf("1", payload))
				return err
			},
			"receive": func(payload string) error { return receive(f.Coming("1", payload)) },
		}
		f.NoError(ways["middleware"]("order"))
		for name, way := range ways {
			err := way("another order")
			var mismatch *inbox.MismatchError
			f.ErrorAs(err, &mismatch, name)
			f.ErrorIs(err, inbox.ErrContentMismatch)
			f.True(outbox.IsPermanent(err), name)
			f.Equal(inbox.MismatchError{Key: suite.KeyOf("1"), Known: inbox.HashOf([]byte("order")), Received: inbox.HashOf([]byte("another order"))}, *mismatch)
			f.ErrorContains(err, `"1" from "shop" for "ship"`)
		}
		f.Len(book.At("ERROR", "different content"), len(ways))
		for _, line := range book.Lines() {
			f.NotContains(line.String(), "another order", "payloads are not logged")
		}
		f.Equal(1, f.CountEntries())
		f.Equal(1, f.Entry(suite.KeyOf("1")).Seen)
		f.Zero(f.Count())
		_, err = in.Enqueue(f.Context(), nil, suite.ReceivedOf("2", "a"), suite.ReceivedOf("2", "b"))
		f.ErrorIs(err, inbox.ErrContentMismatch, "also within a call")
		f.Equal(1, f.CountEntries())
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
		if f.Lacks(suite.UnescapesJSON) != "" {
			parts = []string{"a", "A", "a b", "a  b", "ss", "i", "I", "%", "_", "NULL", "1", "01", "1.0", long}
		}
		var keys []inbox.Key
		for _, p := range parts {
			keys = append(keys, inbox.Key{Source: p, MessageID: "x", Handler: "y"}, inbox.Key{Source: "x", MessageID: p, Handler: "y"},
				inbox.Key{Source: "x", MessageID: "y", Handler: p})
		}
		keys = append(keys, inbox.Key{Source: long, MessageID: long, Handler: long})
		for i, key := range keys {
			ids, err := f.In.Enqueue(f.Context(), nil, inbox.Received{Key: key, Message: outbox.Message{Payload: []byte{byte(i)}}})
			f.NoError(err, "%v", key)
			f.NotEqual(outbox.MessageID{}, ids[0], "%v is new", key)
		}
		entries, err := f.In.Get(f.Context(), keys...)
		f.NoError(err)
		f.Len(entries, len(keys))
		for i, e := range entries {
			f.Equal(keys[i], e.Key)
			f.Equal(inbox.HashOf([]byte{byte(i)}), e.Hash)
		}
		f.Equal(len(keys), f.CountEntries())

		for field, set := range map[string]func(*inbox.Key, string){
			"Key.Source":    func(k *inbox.Key, text string) { k.Source = text },
			"Key.MessageID": func(k *inbox.Key, text string) { k.MessageID = text },
			"Key.Handler":   func(k *inbox.Key, text string) { k.Handler = text },
		} {
			for _, bad := range []string{"", " ", "a ", " a", "a\t", "a\u00a0", "a\x00b", "\xff", strings.Repeat("a", 256), strings.Repeat("🙂", 128)} {
				key := suite.KeyOf("bad")
				set(&key, bad)
				_, err := f.In.Enqueue(f.Context(), nil, suite.ReceivedOf("good", ""), inbox.Received{Key: key})
				f.RequireField(err, field)
				f.RequireField(f.InTx(func(tx *sql.Tx) error { _, err := f.In.Begin(f.Context(), tx, key, inbox.Hash{}); return err }), field)
				f.RequireField(f.InTx(func(tx *sql.Tx) error { return f.In.SaveResult(f.Context(), tx, key, nil) }), field)
				_, err = f.In.Get(f.Context(), key)
				f.RequireField(err, field)
				_, err = f.In.Requeue(f.Context(), key)
				f.RequireField(err, field)
			}
		}
		_, err = f.In.Enqueue(f.Context(), nil, inbox.Received{Key: suite.KeyOf("new"), Message: outbox.Message{Headers: map[string]string{"a": "\xff"}}})
		f.RequireField(err, "Headers")
		f.Equal(len(keys), f.CountEntries(), "nothing of a refused call is kept")
	})
}
