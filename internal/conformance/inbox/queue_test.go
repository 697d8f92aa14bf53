package inbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/inbox"
	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/faults"
	"github.com/incursa/watermill-outbox/internal/testdb"
)

func TestInbox_WhatIsEnqueuedTwiceIsOneMessage(t *testing.T) {
	forEachInbox(t, func(t *testing.T, f *inboxFixture) {
		order := inbox.Received{Key: suite.KeyOf("1"), Message: outbox.Message{
			UUID: "uuid", Payload: []byte{0, 255}, Headers: map[string]string{"correlation_id": "c", "a": "🙂"}, StreamKey: "s"}}
		ids, err := f.In.Enqueue(f.Context(), nil, order, order)
		f.NoError(err)
		f.NotEqual(outbox.MessageID{}, ids[0])
		f.Equal(outbox.MessageID{}, ids[1])
		again, err := f.In.Enqueue(f.Context(), f.DB.DB, order)
		f.NoError(err)
		f.Equal([]outbox.MessageID{{}}, again)
		f.Equal(1, f.Count())
		claimed := f.Claim("ship")
		f.Len(claimed, 1)
		order.Message.ID, order.Message.Topic, order.Message.CorrelationID = ids[0], "ship", "c"
		f.Equal(order.Message, claimed[0].Message)
		e := f.Entry(suite.KeyOf("1"))
		f.Equal([]any{2, ids[0], outbox.InProgress, true}, []any{e.Seen, e.QueueID, e.Status, e.ProcessedAt.IsZero()})

		topical := suite.ReceivedOf("2", "")
		topical.Message.Topic = "elsewhere"
		topical.Hash = inbox.Hash{7}
		_, err = f.In.Enqueue(f.Context(), nil, topical)
		f.NoError(err)
		f.Len(f.Claim("elsewhere"), 1)
		f.Equal(inbox.Hash{7}, f.Entry(suite.KeyOf("2")).Hash)

		none, err := f.In.Enqueue(f.Context(), nil)
		f.NoError(err)
		f.Empty(none)
		var noTx *sql.Tx
		_, err = f.In.Enqueue(f.Context(), noTx, order)
		f.ErrorIs(err, base.ErrNilDB)
	})
}

// Without an executor Enqueue is part of the transaction that its context carries, if that can be one of this database.
func TestTrap_EnqueueWithoutAnExecutorStaysInTheTransactionOfItsContext(t *testing.T) {
	forEachInbox(t, func(t *testing.T, f *inboxFixture) {
		enqueue := func(ctx context.Context) error {
			_, err := f.In.Enqueue(ctx, nil, suite.ReceivedOf("1", ""))
			return err
		}
		f.ErrorIs(outbox.InTx(f.Context(), f.DB.DB, func(ctx context.Context, _ *sql.Tx) error {
			f.NoError(enqueue(ctx))
			return sql.ErrNoRows
		}), sql.ErrNoRows)
		f.ErrorIs(f.InTx(func(tx *sql.Tx) error {
			f.NoError(enqueue(outbox.WithTx(f.Context(), tx)))
			return sql.ErrNoRows
		}), sql.ErrNoRows)
		f.RequireField(outbox.InTx(f.Context(), faults.Open(t, f.DB, faults.Hooks{}), func(ctx context.Context, _ *sql.Tx) error {
			return enqueue(ctx)
		}), "ctx")
		f.Zero(f.CountEntries() + f.Count())
		f.NoError(enqueue(f.Context()))
		f.Equal(1, f.CountEntries())
	})
}

func TestInbox_EnqueueIsAllOrNothing(t *testing.T) {
	forEachInbox(t, func(t *testing.T, f *inboxFixture) {
		f.ErrorIs(f.InTx(func(tx *sql.Tx) error {
			_, err := f.In.Enqueue(f.Context(), tx, suite.ReceivedOf("1", ""))
			f.NoError(err)
			return sql.ErrNoRows
		}), sql.ErrNoRows)
		f.Zero(f.CountEntries() + f.Count())
		f.Received("1")

		const n = 2500 // more than a batch
		list := make([]inbox.Received, n)
		for i := range list {
			list[i] = suite.ReceivedOf(fmt.Sprint("m", i), fmt.Sprint(i))
		}
		list[1700].Key = suite.KeyOf("1")
		_, err := f.In.Enqueue(f.Context(), nil, list...)
		f.ErrorIs(err, inbox.ErrContentMismatch)
		f.Equal(1, f.CountEntries())
		f.Equal(1, f.Count())

		list[1700] = list[3] // comes twice
		ids, err := f.In.Enqueue(f.Context(), nil, list...)
		f.NoError(err)
		f.Len(ids, n)
		f.Equal(outbox.MessageID{}, ids[1700])
		f.Equal(n, f.CountEntries())
		rows := f.Rows("1 = 1")
		f.Len(rows, n)
		ids = append(ids[:1700], ids[1701:]...)
		for i, r := range rows[1:] {
			f.Equal(ids[i], r.ID, "the queue has the order of the call")
		}
	})
}

// Many enqueue the same messages in different orders: each is in the queue once, and nobody fails.
func TestTrap_InboxConcurrentEnqueues(t *testing.T) {
	forEachInbox(t, func(t *testing.T, f *inboxFixture) {
		receivers, messages := 16, 60
		if f.Slow() || f.DB.Name == testdb.SQLServer && f.Lacks(suite.SkipLocked) != "" {
			// A server that heeds no hints locks in no order, and ends one deadlock after the other.
			receivers, messages = 4, 20
		}
		var all sync.WaitGroup
		added := make([]int, receivers)
		failures := make(chan error, receivers)
		for i := range receivers {
			all.Go(func() {
				list := make([]inbox.Received, 0, messages)
				for _, m := range rand.Perm(messages) {
					list = append(list, suite.ReceivedOf(fmt.Sprint(m), "same"))
				}
				ids, err := f.In.Enqueue(f.Context(), nil, list...)
				for _, id := range ids {
					if id != (outbox.MessageID{}) {
						added[i]++
					}
				}
				failures <- err
			})
		}
		all.Wait()
		close(failures)
		for err := range failures {
			f.NoError(err)
		}
		total := 0
		for _, n := range added {
			total += n
		}
		f.Equal([]int{messages, messages, messages}, []int{total, f.Count(), f.CountEntries()})
		f.Equal(messages, int(f.Number("SELECT COUNT(*) FROM {entry} WHERE {seen} = %d", receivers)))
	})
}

// The life of what is in the queue is that of a message in an outbox, and the entry tells how it stands.
func TestInbox_TheLifeOfAQueuedMessage(t *testing.T) {
	forEachInbox(t, func(t *testing.T, f *inboxFixture) {
		queue := f.In.Queue()
		f.Received("done", "abandoned", "failed", "expired", "ready")
		stands := func(id string, status outbox.Status, attempts int, lastError string) {
			t.Helper()
			e := f.Entry(suite.KeyOf(id))
			f.Equal([]any{status, attempts, lastError}, []any{e.Status, e.Attempts, e.LastError}, id)
			f.Equal(status.String(), f.state(id))
		}
		stands("done", outbox.Ready, 0, "")
		claimed, err := queue.Claim(f.Context(), outbox.ClaimParams{Topics: suite.Quotas("ship"), Limit: 4})
		f.NoError(err)
		f.Len(claimed, 4)
		owner := claimed[0].Receipt.Owner
		stands("done", outbox.InProgress, 0, "")
		f.NoError(queue.Ack(f.Context(), owner, claimed[0].Receipt.Seq))
		f.NoError(queue.Abandon(f.Context(), owner, errors.New("not yet"), claimed[1].Receipt.Seq))
		f.NoError(queue.Fail(f.Context(), owner, errors.New("never"), claimed[2].Receipt.Seq))
		f.ExpireLeases()
		n, err := queue.ReapExpired(f.Context())
		f.NoError(err)
		f.Equal(1, n)
		stands("done", outbox.Done, 0, "")
		stands("abandoned", outbox.Ready, 1, "not yet")
		stands("failed", outbox.Failed, 0, "never")
		stands("ready", outbox.Ready, 0, "")
		e := f.Entry(suite.KeyOf("expired"))
		f.Equal([]any{outbox.Ready, 1}, []any{e.Status, e.Attempts})

		for _, id := range []string{"done", "abandoned", "failed", "expired", "ready"} {
			ids, err := f.In.Enqueue(f.Context(), nil, suite.ReceivedOf(id, "payload of "+id))
			f.NoError(err)
			f.Equal([]outbox.MessageID{{}}, ids, "%s is known", id)
		}
		f.Equal(5, f.Count())
	})
}

// state is how people see an entry.
func (f *inboxFixture) state(id string) (state string) {
	f.T.Helper()
	f.NoError(f.DB.QueryRowContext(f.Context(), f.SQL("SELECT {state} FROM {entry_view} WHERE {message_id} = '%s'", id)).Scan(&state))
	return state
}

func TestInbox_AMessageDeletedOnAckIsDone(t *testing.T) {
	forEachInbox(t, func(t *testing.T, f *inboxFixture) {
		f.Received("1")
		deleting := f.NewOutbox(f.DB.DB, func(c *outbox.Config) { c.DeleteOnAck = true })
		_, err := deleting.Settle(f.Context(), f.DB.DB, suite.Settled(outbox.Ack, f.Claim("ship")...))
		f.NoError(err)
		f.Zero(f.Count())
		f.Equal(outbox.Done, f.Entry(suite.KeyOf("1")).Status)
		f.Equal("done", f.state("1"))
		ids, err := f.In.Enqueue(f.Context(), nil, suite.ReceivedOf("1", "payload of 1"))
		f.NoError(err)
		f.Equal([]outbox.MessageID{{}}, ids, "and is not enqueued again")
		n, err := f.In.Purge(f.Context(), outbox.PurgeParams{})
		f.NoError(err)
		f.Equal(1, n)
	})
}

// From a broker into the queue by Receive, from the queue to a handler whose effects happen once: under one identity, for the
// queue's own delivery is no duplicate of what was enqueued.
func TestTrap_InboxReceiveNowWorkLater(t *testing.T) {
	forEachInbox(t, func(t *testing.T, f *inboxFixture) {
		broker := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, nil)
		s, err := inbox.NewSubscriber(f.DB.DB, outbox.SubscriberConfig{
			Dialect: f.Config.Dialect, Schema: f.Config.Schema, PollInterval: time.Millisecond, MaxPollInterval: 10 * time.Millisecond,
			DrainTimeout: time.Second, UnhandledAfter: -1, AllowCompeting: true,
			Backoff: func(int) time.Duration { return time.Millisecond }}, nil)
		f.NoError(err)
		router, err := message.NewRouter(message.RouterConfig{}, nil)
		f.NoError(err)
		receive, err := f.In.Receive(suite.Identity)
		f.NoError(err)
		router.AddConsumerHandler("receive", "orders", broker, receive)
		var calls atomic.Int32
		shipped := make(chan string, 10)
		handle := f.Guarded(f.In, func(msg *message.Message) ([]*message.Message, error) {
			if err := f.Effect(msg.Context(), 1); err != nil {
				return nil, err
			}
			if calls.Add(1) == 1 {
				return nil, errors.New("the first attempt fails")
			}
			out := message.NewMessage("next "+msg.UUID, msg.Payload)
			out.SetContext(msg.Context())
			return []*message.Message{out}, nil
		})
		unpublished := true // the first time that the result is to be published
		router.AddConsumerHandler("ship", "ship", s, func(msg *message.Message) error {
			produced, err := handle(msg)
			if err != nil {
				return err
			}
			if unpublished {
				unpublished = false
				return errors.New("the broker is away")
			}
			for _, p := range produced {
				shipped <- p.UUID + " " + string(p.Payload) + " " + msg.Metadata["a"]
			}
			return nil
		})
		ran := make(chan error, 1)
		go func() { ran <- router.Run(context.WithoutCancel(f.Context())) }()
		defer func() {
			f.NoError(router.Close())
			f.NoError(<-ran)
			f.NoError(s.Close())
			f.NoError(broker.Close())
		}()
		suite.Take(f.T, router.Running(), "the router")
		for range 3 {
			msg := message.NewMessage("1", []byte("order"))
			msg.Metadata.Set("a", "b")
			f.NoError(broker.Publish("orders", msg))
		}
		got, _ := suite.Take(f.T, shipped, "what the handler returned")
		f.Equal("next 1 order b", got)
		f.Becomes(f.Entry(suite.KeyOf("1")).QueueID, outbox.Done)
		e := f.Entry(suite.KeyOf("1"))
		f.Equal([]any{outbox.Done, 2}, []any{e.Status, e.Attempts})
		f.False(e.ProcessedAt.IsZero())
		f.Equal(2, int(calls.Load()), "one failed, one succeeded; publishing again called none")
		f.Equal(1, f.CountEffects())
		f.Empty(shipped)
	})
}

// A duplicate that comes past the queue leaves the message to the queue.
func TestInbox_ADuplicateOfAQueuedMessageIsLeftToTheQueue(t *testing.T) {
	forEachInbox(t, func(t *testing.T, f *inboxFixture) {
		f.Received("1")
		var calls atomic.Int32
		produced, err := f.Guarded(f.In, f.Ship(&calls))(f.Coming("1", "payload of 1"))
		f.NoError(err)
		f.Empty(produced)
		f.Zero(calls.Load())
		f.Len(f.Claim("ship"), 1)
	})
}
