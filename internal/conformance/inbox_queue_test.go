package conformance

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
	"github.com/incursa/watermill-outbox/join"
)

func TestInbox_WhatIsEnqueuedTwiceIsOneMessage(t *testing.T) {
	forEachInbox(t, func(t *testing.T, f *inboxFixture) {
		order := inbox.Received{Key: keyOf("1"), Message: outbox.Message{
			UUID: "uuid", Payload: []byte{0, 255}, Headers: map[string]string{"correlation_id": "c", "a": "🙂"}, StreamKey: "s"}}
		ids, err := f.in.Enqueue(f.ctx(), nil, order, order)
		f.NoError(err)
		f.NotEqual(outbox.MessageID{}, ids[0])
		f.Equal(outbox.MessageID{}, ids[1])
		again, err := f.in.Enqueue(f.ctx(), f.db.DB, order)
		f.NoError(err)
		f.Equal([]outbox.MessageID{{}}, again)
		f.Equal(1, f.count())
		claimed := f.claim("ship")
		f.Len(claimed, 1)
		order.Message.ID, order.Message.Topic, order.Message.CorrelationID = ids[0], "ship", "c"
		f.Equal(order.Message, claimed[0].Message)
		e := f.entry(keyOf("1"))
		f.Equal([]any{2, ids[0], outbox.InProgress, true}, []any{e.Seen, e.QueueID, e.Status, e.ProcessedAt.IsZero()})

		topical := receivedOf("2", "")
		topical.Message.Topic = "elsewhere"
		topical.Hash = inbox.Hash{7}
		_, err = f.in.Enqueue(f.ctx(), nil, topical)
		f.NoError(err)
		f.Len(f.claim("elsewhere"), 1)
		f.Equal(inbox.Hash{7}, f.entry(keyOf("2")).Hash)

		none, err := f.in.Enqueue(f.ctx(), nil)
		f.NoError(err)
		f.Empty(none)
		var noTx *sql.Tx
		_, err = f.in.Enqueue(f.ctx(), noTx, order)
		f.ErrorIs(err, outbox.ErrNilDB)
	})
}

func TestInbox_EnqueueIsAllOrNothing(t *testing.T) {
	forEachInbox(t, func(t *testing.T, f *inboxFixture) {
		f.ErrorIs(f.inTx(func(tx *sql.Tx) error {
			_, err := f.in.Enqueue(f.ctx(), tx, receivedOf("1", ""))
			f.NoError(err)
			return sql.ErrNoRows
		}), sql.ErrNoRows)
		f.Zero(f.countEntries() + f.count())
		f.received("1")

		const n = 2500 // more than a batch
		list := make([]inbox.Received, n)
		for i := range list {
			list[i] = receivedOf(fmt.Sprint("m", i), fmt.Sprint(i))
		}
		list[1700].Key = keyOf("1")
		_, err := f.in.Enqueue(f.ctx(), nil, list...)
		f.ErrorIs(err, inbox.ErrContentMismatch)
		f.Equal(1, f.countEntries())
		f.Equal(1, f.count())

		list[1700] = list[3] // comes twice
		ids, err := f.in.Enqueue(f.ctx(), nil, list...)
		f.NoError(err)
		f.Len(ids, n)
		f.Equal(outbox.MessageID{}, ids[1700])
		f.Equal(n, f.countEntries())
		rows := f.rows("1 = 1")
		f.Len(rows, n)
		ids = append(ids[:1700], ids[1701:]...)
		for i, r := range rows[1:] {
			f.Equal(ids[i], r.id, "the queue has the order of the call")
		}
	})
}

// Many enqueue the same messages in different orders: each is in the queue once, and nobody fails.
func TestTrap_InboxConcurrentEnqueues(t *testing.T) {
	forEachInbox(t, func(t *testing.T, f *inboxFixture) {
		receivers, messages := 16, 60
		if f.slow() {
			receivers, messages = 4, 20
		}
		var all sync.WaitGroup
		added := make([]int, receivers)
		failures := make(chan error, receivers)
		for i := range receivers {
			all.Go(func() {
				list := make([]inbox.Received, 0, messages)
				for _, m := range rand.Perm(messages) {
					list = append(list, receivedOf(fmt.Sprint(m), "same"))
				}
				ids, err := f.in.Enqueue(f.ctx(), nil, list...)
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
		f.Equal([]int{messages, messages, messages}, []int{total, f.count(), f.countEntries()})
		f.Equal(messages, int(f.number("SELECT COUNT(*) FROM {entry} WHERE {seen} = %d", receivers)))
	})
}

// The life of what is in the queue is that of a message in an outbox, and the entry tells how it stands.
func TestInbox_TheLifeOfAQueuedMessage(t *testing.T) {
	forEachInbox(t, func(t *testing.T, f *inboxFixture) {
		queue := f.in.Queue()
		f.received("done", "abandoned", "failed", "expired", "ready")
		stands := func(id string, status outbox.Status, attempts int, lastError string) {
			t.Helper()
			e := f.entry(keyOf(id))
			f.Equal([]any{status, attempts, lastError}, []any{e.Status, e.Attempts, e.LastError}, id)
			f.Equal(status.String(), f.state(id))
		}
		stands("done", outbox.Ready, 0, "")
		claimed, err := queue.Claim(f.ctx(), outbox.ClaimParams{Topics: quotas("ship"), Limit: 4})
		f.NoError(err)
		f.Len(claimed, 4)
		owner := claimed[0].Receipt.Owner
		stands("done", outbox.InProgress, 0, "")
		f.NoError(queue.Ack(f.ctx(), owner, claimed[0].Receipt.Seq))
		f.NoError(queue.Abandon(f.ctx(), owner, errors.New("not yet"), claimed[1].Receipt.Seq))
		f.NoError(queue.Fail(f.ctx(), owner, errors.New("never"), claimed[2].Receipt.Seq))
		f.expireLeases()
		n, err := queue.ReapExpired(f.ctx())
		f.NoError(err)
		f.Equal(1, n)
		stands("done", outbox.Done, 0, "")
		stands("abandoned", outbox.Ready, 1, "not yet")
		stands("failed", outbox.Failed, 0, "never")
		stands("ready", outbox.Ready, 0, "")
		e := f.entry(keyOf("expired"))
		f.Equal([]any{outbox.Ready, 1}, []any{e.Status, e.Attempts})

		for _, id := range []string{"done", "abandoned", "failed", "expired", "ready"} {
			ids, err := f.in.Enqueue(f.ctx(), nil, receivedOf(id, "payload of "+id))
			f.NoError(err)
			f.Equal([]outbox.MessageID{{}}, ids, "%s is known", id)
		}
		f.Equal(5, f.count())
	})
}

// state is how people see an entry.
func (f *inboxFixture) state(id string) (state string) {
	f.t.Helper()
	f.NoError(f.db.QueryRowContext(f.ctx(), f.sql("SELECT {state} FROM {entry_view} WHERE {message_id} = '%s'", id)).Scan(&state))
	return state
}

func TestInbox_AMessageDeletedOnAckIsDone(t *testing.T) {
	forEachInbox(t, func(t *testing.T, f *inboxFixture) {
		f.received("1")
		deleting := f.newOutbox(f.db.DB, func(c *outbox.Config) { c.DeleteOnAck = true })
		_, err := deleting.Settle(f.ctx(), f.db.DB, settled(outbox.Ack, f.claim("ship")...))
		f.NoError(err)
		f.Zero(f.count())
		f.Equal(outbox.Done, f.entry(keyOf("1")).Status)
		f.Equal("done", f.state("1"))
		ids, err := f.in.Enqueue(f.ctx(), nil, receivedOf("1", "payload of 1"))
		f.NoError(err)
		f.Equal([]outbox.MessageID{{}}, ids, "and is not enqueued again")
		n, err := f.in.Purge(f.ctx(), outbox.PurgeParams{})
		f.NoError(err)
		f.Equal(1, n)
	})
}

func TestInbox_Revive(t *testing.T) {
	forEachInbox(t, func(t *testing.T, f *inboxFixture) {
		f.received("dead", "also dead", "done", "held", "ready")
		claimed := f.claimWith(outbox.ClaimParams{Topics: quotas("ship"), Limit: 4})
		f.NoError(f.in.Queue().Fail(f.ctx(), claimed[0].Receipt.Owner, errors.New("never"), claimed[0].Receipt.Seq, claimed[1].Receipt.Seq))
		f.settle(settled(outbox.Ack, claimed[2])...)
		f.NoError(f.inTx(func(tx *sql.Tx) error { _, err := f.begin(tx, "at once"); return err }))
		before := f.rows("{status} <> 3")
		n, err := f.in.Revive(f.ctx(), keyOf("dead"), keyOf("done"), keyOf("held"), keyOf("ready"), keyOf("at once"), keyOf("unknown"))
		f.NoError(err)
		f.Equal(1, n)
		e := f.entry(keyOf("dead"))
		f.Equal([]any{outbox.Ready, 0, "never"}, []any{e.Status, e.Attempts, e.LastError})
		f.Equal(outbox.Failed, f.entry(keyOf("also dead")).Status)
		f.Len(f.claim("ship"), 2)
		n, err = f.in.Revive(f.ctx())
		f.NoError(err)
		f.Zero(n, "no keys, no messages")
		f.Equal(before[0], f.rows("{message_id} = '%s'", before[0].id)[0])
	})
}

func TestTrap_InboxPurgeSparesWhatHasNotEnded(t *testing.T) {
	forEachInbox(t, func(t *testing.T, f *inboxFixture) {
		f.received("done", "failed", "held", "deleted", "young", "back", "ready")
		claimed := f.claimWith(outbox.ClaimParams{Topics: quotas("ship"), Limit: 6})
		f.settle(settled(outbox.Ack, claimed[0], claimed[4], claimed[5])...)
		f.settle(settled(outbox.Fail, claimed[1])...)
		f.exec("DELETE FROM {outbox} WHERE {message_id} = '%s'", claimed[3].ID)
		f.NoError(f.inTx(func(tx *sql.Tx) error {
			_, err := f.begin(tx, "at once")
			_, again := f.begin(tx, "seen again")
			return errors.Join(err, again)
		}))
		direct := f.enqueueN("by itself", 1)[0] // of the queue alone
		f.settle(settled(outbox.Ack, f.claim("by itself")...)...)
		f.exec("UPDATE {entry} SET {first_seen_at} = {past}, {last_seen_at} = {past}")
		f.exec("UPDATE {outbox} SET {processed_at} = {past} WHERE {status} >= 2 AND {message_id} <> '%s'", claimed[4].ID)
		f.exec("UPDATE {entry} SET {last_seen_at} = {now} WHERE {message_id} = 'seen again' OR {message_id} = 'back'")

		purge := func(params outbox.PurgeParams) int {
			t.Helper()
			n, err := f.in.Purge(f.ctx(), params)
			f.NoError(err)
			return n
		}
		f.Zero(purge(outbox.PurgeParams{OlderThan: 2 * time.Hour}))
		left := func(ids ...string) {
			t.Helper()
			names, err := f.strings(f.db, f.sql("SELECT {message_id} FROM {entry}"))
			f.NoError(err)
			f.ElementsMatch(ids, names)
		}
		f.Equal(1, purge(outbox.PurgeParams{OlderThan: time.Minute, Failed: true}))
		left("done", "held", "deleted", "young", "back", "ready", "at once", "seen again")
		f.Empty(f.rows("{status} = 3"), "a message goes with its entry")
		f.Equal(3, purge(outbox.PurgeParams{OlderThan: time.Minute}), "done, deleted, at once")
		f.Zero(purge(outbox.PurgeParams{OlderThan: time.Minute}))
		left("held", "young", "back", "seen again", "ready")
		f.Len(f.rows("1 = 1"), 5, "held, young, back, ready, and the one by itself")
		f.Equal(3, purge(outbox.PurgeParams{}))
		f.Zero(purge(outbox.PurgeParams{Failed: true}))
		left("held", "ready")
		f.Equal([]int{1, 1, 1}, []int{len(f.rows("{status} = 0")), len(f.rows("{status} = 1")), len(f.rows("{message_id} = '%s'", direct))})
		f.received("done") // which is new again

		_, err := f.in.Purge(f.ctx(), outbox.PurgeParams{OlderThan: -1})
		f.requireField(err, "PurgeParams.OlderThan")
	})
}

// What a join of the queue's messages still needs stays, with its entry.
func TestInbox_PurgeSparesTheStepsOfAPendingJoin(t *testing.T) {
	forEachInbox(t, func(t *testing.T, f *inboxFixture) {
		config := f.inboxConfig("")
		config.WithJoins = true
		f.NoError(inbox.Migrate(f.ctx(), f.db.DB, config))
		c := f.joins()
		id := f.start(c, join.StartParams{ExpectedSteps: 2})
		f.NoError(c.Attach(f.ctx(), nil, id, f.received("1", "2")...))
		f.settle(settled(outbox.Ack, f.claimWith(outbox.ClaimParams{Topics: quotas("ship"), Limit: 1})...)...)
		n, err := f.in.Purge(f.ctx(), outbox.PurgeParams{})
		f.NoError(err)
		f.Zero(n)
		f.settle(settled(outbox.Ack, f.claim("ship")...)...)
		f.stands(c, id, outbox.JoinCompleted, 2, 0)
		n, err = f.in.Purge(f.ctx(), outbox.PurgeParams{})
		f.NoError(err)
		f.Equal(2, n)
		f.Zero(f.count() + f.countEntries())
	})
}

// Purge, Revive and workers at the same time: nothing is purged that is alive, nothing is left without its entry.
func TestTrap_InboxPurgeAndReviveAtOnce(t *testing.T) {
	forEachInbox(t, func(t *testing.T, f *inboxFixture) {
		n := 200
		if f.slow() {
			n = 20
		}
		var keys []inbox.Key
		var ids []string
		for i := range n {
			ids = append(ids, fmt.Sprint(i))
			keys = append(keys, keyOf(ids[i]))
		}
		f.received(ids...)
		for {
			claimed := f.claim("ship")
			if len(claimed) == 0 {
				break
			}
			f.settle(settled(outbox.Fail, claimed...)...)
		}
		var all sync.WaitGroup
		failures := make(chan error, 3)
		var revived, purged atomic.Int64
		all.Go(func() {
			for i := 0; i < n; i += 5 {
				k, err := f.in.Revive(f.ctx(), keys[i:i+5]...)
				revived.Add(int64(k))
				if err != nil {
					failures <- err
					return
				}
			}
		})
		for range 2 {
			all.Go(func() {
				for range 20 {
					k, err := f.in.Purge(f.ctx(), outbox.PurgeParams{Failed: true})
					purged.Add(int64(k))
					if err != nil {
						failures <- err
						return
					}
				}
			})
		}
		all.Wait()
		close(failures)
		for err := range failures {
			f.NoError(err)
		}
		f.Equal(n, int(revived.Load()+purged.Load()), "each was one or the other")
		f.Equal(int(revived.Load()), f.countEntries())
		f.Equal(f.countEntries(), int(f.number("SELECT COUNT(*) FROM {outbox} o WHERE {status} = 0 AND EXISTS (SELECT 1 FROM {entry} e WHERE e.{queue_id} = o.{message_id})")))
		f.Equal(f.countEntries(), f.count())
	})
}

// From a broker into the queue by Receive, from the queue to a handler whose effects happen once: under one identity, for the
// queue's own delivery is no duplicate of what was enqueued.
func TestTrap_InboxReceiveNowWorkLater(t *testing.T) {
	forEachInbox(t, func(t *testing.T, f *inboxFixture) {
		broker := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, nil)
		s, err := inbox.NewSubscriber(f.db.DB, outbox.SubscriberConfig{
			Dialect: f.config.Dialect, Schema: f.config.Schema, PollInterval: time.Millisecond, MaxPollInterval: 10 * time.Millisecond,
			DrainTimeout: time.Second, UnhandledAfter: -1, Backoff: func(int) time.Duration { return time.Millisecond }}, nil)
		f.NoError(err)
		router, err := message.NewRouter(message.RouterConfig{}, nil)
		f.NoError(err)
		receive, err := f.in.Receive(identity)
		f.NoError(err)
		router.AddConsumerHandler("receive", "orders", broker, receive)
		var calls atomic.Int32
		shipped := make(chan string, 10)
		handle := f.guarded(f.in, func(msg *message.Message) ([]*message.Message, error) {
			if err := f.effect(msg.Context(), 1); err != nil {
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
		go func() { ran <- router.Run(context.WithoutCancel(f.ctx())) }()
		defer func() {
			f.NoError(router.Close())
			f.NoError(<-ran)
			f.NoError(s.Close())
			f.NoError(broker.Close())
		}()
		take(f.fixture, router.Running(), "the router")
		for range 3 {
			msg := message.NewMessage("1", []byte("order"))
			msg.Metadata.Set("a", "b")
			f.NoError(broker.Publish("orders", msg))
		}
		got, _ := take(f.fixture, shipped, "what the handler returned")
		f.Equal("next 1 order b", got)
		f.becomes(f.entry(keyOf("1")).QueueID, outbox.Done)
		e := f.entry(keyOf("1"))
		f.Equal([]any{outbox.Done, 2}, []any{e.Status, e.Attempts})
		f.False(e.ProcessedAt.IsZero())
		f.Equal(2, int(calls.Load()), "one failed, one succeeded; publishing again called none")
		f.Equal(1, f.countEffects())
		f.Empty(shipped)
	})
}

// A duplicate that comes past the queue leaves the message to the queue.
func TestInbox_ADuplicateOfAQueuedMessageIsLeftToTheQueue(t *testing.T) {
	forEachInbox(t, func(t *testing.T, f *inboxFixture) {
		f.received("1")
		var calls atomic.Int32
		produced, err := f.guarded(f.in, f.ship(&calls))(f.coming("1", "payload of 1"))
		f.NoError(err)
		f.Empty(produced)
		f.Zero(calls.Load())
		f.Len(f.claim("ship"), 1)
	})
}
