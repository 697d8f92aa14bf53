package inbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	wmmiddleware "github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/stretchr/testify/require"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/inbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/middleware"
)

func TestTrap_InboxConcurrentDuplicatesHaveOneEffect(t *testing.T) {
	forEachInbox(t, func(t *testing.T, f *inboxFixture) {
		duplicates := 100
		if f.Slow() {
			duplicates = 20
		}
		var calls atomic.Int32
		publisher := f.Publisher(nil, func(c *outbox.PublisherConfig) { c.RequireTx = true })
		handle := f.Guarded(f.In, func(msg *message.Message) ([]*message.Message, error) {
			calls.Add(1)
			next := message.NewMessage("next", nil)
			next.SetContext(msg.Context())
			return nil, errors.Join(f.Effect(msg.Context(), 1), publisher.Publish("shipped", next))
		})
		var all sync.WaitGroup
		failures := make(chan error, duplicates)
		for range duplicates {
			all.Go(func() {
				_, err := handle(f.Coming("1", "order"))
				for outbox.IsRetryable(err) { // comes again
					_, err = handle(f.Coming("1", "order"))
				}
				failures <- err
			})
		}
		all.Wait()
		close(failures)
		for err := range failures {
			f.NoError(err)
		}
		f.Equal(1, f.CountEffects())
		f.Equal(1, f.Count(), "messages that the handler has published")
		e := f.Entry(suite.KeyOf("1"))
		f.Equal([]any{duplicates, outbox.Done, outbox.MessageID{}, inbox.HashOf([]byte("order"))}, []any{e.Seen, e.Status, e.QueueID, e.Hash})
		f.False(e.ProcessedAt.IsZero())
		f.False(e.LastSeenAt.Before(e.FirstSeenAt))
		f.GreaterOrEqual(int(calls.Load()), 1)
	})
}

// A remembered key is all that Watermill's Deduplicator asks of its repository.
type remembered struct {
	mu   sync.Mutex
	keys map[string]bool
}

func (r *remembered) IsDuplicate(_ context.Context, key string) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.keys[key]
	r.keys[key] = true
	return known, nil
}

// Watermill's Deduplicator marks a message before its handler has succeeded, and so loses one that fails.
func TestTrap_InboxAMessageThatFailedIsHandledAgain(t *testing.T) {
	forEachInbox(t, func(t *testing.T, f *inboxFixture) {
		failure := errors.New("the warehouse is closed")
		failingOnce := func(effect func(ctx context.Context) error) message.HandlerFunc {
			failed := false
			return func(msg *message.Message) ([]*message.Message, error) {
				if err := effect(msg.Context()); err != nil || failed {
					return nil, err
				}
				failed = true
				return []*message.Message{message.NewMessage("lost", nil)}, failure
			}
		}
		deduplicator := &wmmiddleware.Deduplicator{Repository: &remembered{keys: map[string]bool{}}}
		handled := 0
		theirs := deduplicator.Middleware(failingOnce(func(context.Context) error { handled++; return nil }))
		_, err := theirs(f.Coming("1", "order"))
		f.ErrorIs(err, failure)
		_, err = theirs(f.Coming("1", "order"))
		f.NoError(err, "it is acknowledged")
		f.Equal(1, handled, "and has never been handled with success")

		ours := f.Guarded(f.In, failingOnce(func(ctx context.Context) error { return f.Effect(ctx, 1) }))
		produced, err := ours(f.Coming("1", "order"))
		f.ErrorIs(err, failure)
		f.Empty(produced)
		f.Zero(f.CountEffects(), "what it wrote is rolled back")
		f.Zero(f.CountEntries(), "and it is not marked")
		_, err = ours(f.Coming("1", "order"))
		f.NoError(err)
		f.Equal(1, f.CountEffects())
		f.Equal(1, f.Entry(suite.KeyOf("1")).Seen)
	})
}

func TestTrap_InboxAPanicLeavesNoMark(t *testing.T) {
	forEachInbox(t, func(t *testing.T, f *inboxFixture) {
		panics := true
		handle := f.Guarded(f.In, func(msg *message.Message) ([]*message.Message, error) {
			err := f.Effect(msg.Context(), 1)
			if panics {
				panic("out of stock")
			}
			return nil, err
		})
		msg := f.Coming("1", "order")
		f.PanicsWithValue("out of stock", func() { _, _ = handle(msg) })
		_, inside := outbox.TxFrom(msg.Context())
		f.False(inside, "the message has its own context again")
		f.Zero(f.CountEffects() + f.CountEntries())
		panics = false
		_, err := handle(f.Coming("1", "order"))
		f.NoError(err)
		f.Equal(1, f.CountEffects())
	})
}

// A handler that goes on in a transaction that has failed must not be marked, whatever it returns.
func TestTrap_InboxAnErrorThatTheHandlerSwallows(t *testing.T) {
	forEachInbox(t, func(t *testing.T, f *inboxFixture) {
		handle := f.Guarded(f.In, func(msg *message.Message) ([]*message.Message, error) {
			tx, _ := outbox.TxFrom(msg.Context())
			return nil, tx.Rollback()
		})
		_, err := handle(f.Coming("1", "order"))
		f.ErrorIs(err, sql.ErrTxDone)
		f.Zero(f.CountEntries())
	})
}

// What the handler returned comes again byte for byte, for a crash may have come before it was published.
func TestTrap_InboxTheResultComesAgain(t *testing.T) {
	forEachInbox(t, func(t *testing.T, f *inboxFixture) {
		bytes := make([]byte, 256)
		for i := range bytes {
			bytes[i] = byte(i)
		}
		calls := 0
		handle := f.Guarded(f.In, func(msg *message.Message) ([]*message.Message, error) {
			calls++
			first := message.NewMessage("Ünï 🙂 <&>\u2028", bytes)
			first.Metadata = message.Metadata{"a": "1", "": "", "nul\x00": "\x00", "🙂": "<&>\u2028", "quote": `"\`}
			first.SetContext(msg.Context())
			return []*message.Message{first, message.NewMessage("", nil)}, f.Effect(msg.Context(), 1)
		})
		produced, err := handle(f.Coming("1", "order"))
		f.NoError(err)
		for range 3 {
			again, err := handle(f.Coming("1", "order"))
			f.NoError(err)
			f.Len(again, 2)
			for i := range again {
				f.True(produced[i].Equals(again[i]), "%v is not %v", again[i], produced[i])
				f.NotSame(produced[i], again[i])
			}
			f.Nil(again[1].Payload)
		}
		f.Equal(1, calls)
		f.Equal(1, f.CountEffects())

		// They are published after the transaction, and so without it.
		publisher := f.Publisher(f.DB.DB)
		f.NoError(publisher.Publish("shipped", produced...))
	})
}

func TestInbox_AResultThatCannotBeKeptFailsTheHandler(t *testing.T) {
	forEachInbox(t, func(t *testing.T, f *inboxFixture) {
		for field, produced := range map[string]*message.Message{
			"UUID": message.NewMessage("\xff", nil), "Metadata": {UUID: "1", Metadata: message.Metadata{"a": "\xff"}},
		} {
			_, err := f.Guarded(f.In, func(*message.Message) ([]*message.Message, error) { return []*message.Message{produced}, nil })(f.Coming("1", "order"))
			f.RequireField(err, field)
			f.True(outbox.IsPermanent(err), "it would return the same again")
		}
		f.Zero(f.CountEntries())
		f.NoError(f.InTx(func(tx *sql.Tx) error {
			_, err := f.In.Begin(f.Context(), tx, suite.KeyOf("1"), inbox.HashOf([]byte("order")))
			return errors.Join(err, f.In.SaveResult(f.Context(), tx, suite.KeyOf("1"), []byte("of somebody else")))
		}))
		_, err := f.Guarded(f.In, nil)(f.Coming("1", "order"))
		f.ErrorContains(err, "decode")
	})
}

// Each handler has its own entry for a message, and each source has its own ids.
func TestInbox_HandlersAndSourcesAreApart(t *testing.T) {
	forEachInbox(t, func(t *testing.T, f *inboxFixture) {
		var calls atomic.Int32
		for _, i := range []inbox.Identity{
			suite.Identity, {Source: "shop", Handler: "bill"}, {Source: "returns", Handler: "ship"},
			{SourceFrom: func(msg *message.Message) string { return "by " + msg.Metadata["sender"] }, Handler: "ship"},
		} {
			once, err := middleware.Inbox(f.In, i)
			f.NoError(err)
			for range 2 {
				msg := f.Coming("1", "order")
				msg.Metadata.Set("sender", "me")
				_, err = once(f.Ship(&calls))(msg)
				f.NoError(err)
			}
		}
		f.Equal(4, int(calls.Load()))
		f.Equal(4, f.CountEntries())
	})
}

// The id of the outbox that a message was relayed from stands before the broker's.
func TestInbox_TheIdentityOfAMessage(t *testing.T) {
	msg := message.NewMessage("uuid", []byte("order"))
	key, hash, err := suite.Identity.Of(msg)
	f := &suite.Fixture{Assertions: require.New(t), T: t}
	f.NoError(err)
	f.Equal(suite.KeyOf("uuid"), key)
	f.Equal(inbox.HashOf([]byte("order")), hash)
	msg.Metadata.Set(outbox.HeaderMessageID, "outbox id")
	key, _, err = suite.Identity.Of(msg)
	f.NoError(err)
	f.Equal(suite.KeyOf("outbox id"), key)
	own := suite.Identity
	own.MessageID = func(*message.Message) string { return "own" }
	own.Hash = func(*message.Message) inbox.Hash { return inbox.Hash{1} }
	key, hash, err = own.Of(msg)
	f.NoError(err)
	f.Equal(suite.KeyOf("own"), key)
	f.Equal(inbox.Hash{1}, hash)
	own.Handler = ""
	_, _, err = own.Of(msg)
	f.RequireField(err, "Key.Handler") // outside of a router it has no name
	f.True(outbox.IsPermanent(err))

	_, err = middleware.Inbox(nil, suite.Identity)
	f.RequireField(err, "in")
	for field, bad := range map[string]inbox.Identity{
		"Identity.Source": {Handler: "h"}, "Key.Source": {Source: " x"}, "Key.Handler": {Source: "s", Handler: "h\x00"},
		"Identity.SourceFrom": {Source: "s", SourceFrom: func(*message.Message) string { return "" }},
	} {
		f.RequireField(bad.Validate(), field)
		_, err := middleware.Inbox(&inbox.Inbox{}, bad)
		f.RequireField(err, field)
		_, err = (&inbox.Inbox{}).Receive(bad)
		f.RequireField(err, field)
	}
}

// A Hash that is zero tells no contents apart, whichever way a message comes in.
func TestTrap_InboxAHashOfZeroIsTheSameForEachWayIn(t *testing.T) {
	forEachInbox(t, func(t *testing.T, f *inboxFixture) {
		identity := suite.Identity
		identity.Hash = func(*message.Message) inbox.Hash { return inbox.Hash{} }
		receive, err := f.In.Receive(identity)
		f.NoError(err)
		once, err := middleware.Inbox(f.In, identity)
		f.NoError(err)
		handle := once(func(*message.Message) ([]*message.Message, error) { return nil, nil })

		f.NoError(receive(f.Coming("1", "order")))
		_, err = handle(f.Coming("1", "order"))
		f.NoError(err)
		_, err = handle(f.Coming("2", "order"))
		f.NoError(err)
		f.NoError(receive(f.Coming("2", "another order")))
		for _, id := range []string{"1", "2"} {
			e := f.Entry(suite.KeyOf(id))
			f.Equal([]any{inbox.Hash{}, 2}, []any{e.Hash, e.Seen})
		}
	})
}

// With a pool of one connection, a handler that uses nothing but its transaction works.
func TestTrap_InboxAPoolOfOneConnection(t *testing.T) {
	forEachInbox(t, func(t *testing.T, f *inboxFixture) {
		pool := f.DB.Reopen(t)
		pool.SetMaxOpenConns(1)
		in := f.Open(pool.DB, "", nil)
		var calls atomic.Int32
		handle := f.Guarded(in, f.Ship(&calls))
		var all sync.WaitGroup
		failures := make(chan error, 20)
		for i := range 20 {
			all.Go(func() {
				_, err := handle(f.Coming(fmt.Sprint(i%5), "order"))
				failures <- err
			})
		}
		all.Wait()
		close(failures)
		for err := range failures {
			f.NoError(err)
		}
		f.Equal(5, f.CountEffects())
		f.Equal(5, int(calls.Load()))
	})
}
