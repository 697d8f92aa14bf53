package log_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/admin"
	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/seam"
)

// deadLetters are the UUIDs of a group's dead letters.
func (f *fixture) deadLetters(group string) (uuids []string) {
	f.T.Helper()
	letters, err := f.Outbox.GroupDeadLetters(f.Context(), outbox.GroupDeadLetterParams{Group: group})
	f.NoError(err)
	for _, d := range letters {
		uuids = append(uuids, d.UUID)
	}
	return uuids
}

func maxAttempts(n int) func(*outbox.SubscriberConfig) {
	return func(c *outbox.SubscriberConfig) { c.MaxAttempts = n }
}

// nack records an error as middleware.Outcome does, and nacks.
func (f *fixture) nack(msg *message.Message, err error) {
	f.T.Helper()
	f.Delivery(msg).SetErr(err)
	msg.Nack()
}

// A message that fails holds its group up for its attempts, and is then kept aside: it can be listed, survives the purge, and
// is delivered to the group again or discarded.
func TestGroup_DeadLetters(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		var mu sync.Mutex
		outcomes := map[outbox.Outcome]int{}
		read := 0
		book := suite.NewLogBook()
		s := f.GroupSubscriber(f.DB.DB, "group", book, maxAttempts(3), func(c *outbox.SubscriberConfig) {
			c.Hooks.OnGroupSettle = func(e outbox.HandledEvent) {
				mu.Lock()
				defer mu.Unlock()
				f.Equal([]string{"group", "orders"}, []string{e.Group, e.Topic})
				f.Equal(e.Outcome != outbox.Ack, e.Err != nil)
				outcomes[e.Outcome]++
			}
			c.Hooks.OnGroupRead = func(e outbox.GroupReadEvent) {
				mu.Lock()
				defer mu.Unlock()
				read += e.Messages
			}
		})
		ids, err := f.LogOutbox().Enqueue(f.Context(), f.DB.DB,
			outbox.Message{UUID: "0", Topic: "orders"},
			outbox.Message{UUID: "bad", Topic: "orders", Payload: []byte{0, 1}, Headers: map[string]string{"h": "v"}, CorrelationID: "cause", StreamKey: "key"},
			outbox.Message{UUID: "2", Topic: "orders"})
		f.NoError(err)
		f.Stamp()
		messages := f.Subscribe(s, "orders")
		f.Receive(messages).Ack()
		for attempt := 1; attempt <= 3; attempt++ {
			msg := f.Receive(messages)
			d := f.Delivery(msg)
			f.Equal("bad", msg.UUID)
			f.Equal(attempt, d.Attempt())
			f.Equal([]any{ids[1], int64(2), "group", "orders", "key"}, []any{d.MessageID(), d.Position(), d.Group(), d.Topic(), d.StreamKey()})
			f.Equal("v", msg.Metadata["h"])
			msg.Metadata["h"] = "changed by the handler"
			f.nack(msg, fmt.Errorf("attempt %d: %w", attempt, suite.ErrBoom))
		}
		msg := f.Receive(messages)
		f.Equal("2", msg.UUID, "the group goes on")
		msg.Ack()
		f.Await(book, "ERROR", "gave up a message")
		f.Len(book.At("ERROR", "Handler did not succeed"), 3)

		letters, err := f.Outbox.GroupDeadLetters(f.Context(), outbox.GroupDeadLetterParams{Group: "group", Topic: "orders"})
		f.NoError(err)
		f.Len(letters, 1)
		d := letters[0]
		f.Equal([]any{"bad", ids[1], int64(2), "group", 3, false, "cause", "key"},
			[]any{d.UUID, d.ID, d.Position, d.Group, d.Attempts, d.Requeued, d.CorrelationID, d.StreamKey})
		f.Contains(d.Reason, "attempt 3")
		f.Equal([]byte{0, 1}, d.Payload)
		f.Equal(map[string]string{"h": "v"}, d.Headers)
		f.WithinDuration(f.Now(), d.FailedAt, time.Minute)

		f.Eventually(func() bool { return f.Number("SELECT MAX({position}) FROM %s", f.LogTable("group")) == 3 }, suite.Patience, time.Millisecond)
		n, err := f.Outbox.Purge(f.Context(), outbox.PurgeParams{Log: true})
		f.NoError(err)
		f.Equal(2, n, "the dead letter stays")
		f.Equal([]string{"bad"}, f.deadLetters("group"))

		change := func(do func(context.Context, outbox.GroupDeadLetterParams) (int, error), params outbox.GroupDeadLetterParams, want int) {
			t.Helper()
			params.Group = "group"
			n, err := do(f.Context(), params)
			f.NoError(err)
			f.Equal(want, n)
		}
		change(f.Outbox.RequeueGroupDeadLetters, outbox.GroupDeadLetterParams{Positions: []int64{}}, 0)
		change(f.Outbox.RequeueGroupDeadLetters, outbox.GroupDeadLetterParams{Positions: []int64{1, 3}}, 0)
		change(f.Outbox.RequeueGroupDeadLetters, outbox.GroupDeadLetterParams{All: true, Topic: "another"}, 0)
		change(f.Outbox.RequeueGroupDeadLetters, outbox.GroupDeadLetterParams{Positions: []int64{2}}, 1)
		for attempt := 1; attempt <= 3; attempt++ { // in vain once more
			msg := f.Receive(messages)
			f.Equal(attempt, f.Delivery(msg).Attempt())
			f.nack(msg, suite.ErrBoom)
		}
		f.Eventually(func() bool {
			letters, err := f.Outbox.GroupDeadLetters(f.Context(), outbox.GroupDeadLetterParams{})
			f.NoError(err)
			return len(letters) == 1 && !letters[0].Requeued
		}, suite.Patience, time.Millisecond)
		operator, err := admin.New(f.Outbox)
		f.NoError(err)
		change(func(ctx context.Context, params outbox.GroupDeadLetterParams) (int, error) {
			return operator.RequeueGroupDeadLetters(ctx, admin.GroupActParams{GroupDeadLetterParams: params, By: "alice"})
		}, outbox.GroupDeadLetterParams{All: true}, 1)
		recorded, err := operator.Audit(f.Context(), admin.AuditParams{})
		f.NoError(err)
		f.Len(recorded, 1)
		f.Equal([]any{"alice", "requeue for group", "group 'group', all", 1}, []any{recorded[0].By, recorded[0].Act, recorded[0].Selection, recorded[0].Affected})
		f.LogN("orders", 3, 4)
		f.Stamp()
		got := map[string]bool{}
		for range 2 {
			msg := f.Receive(messages)
			got[msg.UUID] = true
			msg.Ack()
		}
		f.Equal(map[string]bool{"bad": true, "3": true}, got)
		f.Eventually(func() bool { return len(f.deadLetters("group")) == 0 }, suite.Patience, time.Millisecond)
		f.NoError(s.Close())
		n, err = f.Outbox.Purge(f.Context(), outbox.PurgeParams{Log: true})
		f.NoError(err)
		f.Equal(2, n)
		f.Zero(f.Count())
		mu.Lock()
		defer mu.Unlock()
		f.Equal(map[outbox.Outcome]int{outbox.Ack: 4, outbox.Retry: 4, outbox.Fail: 2}, outcomes)
		f.Equal(4, read)

		for field, params := range map[string]outbox.GroupDeadLetterParams{
			"GroupDeadLetterParams.Group": {All: true}, "GroupDeadLetterParams.Limit": {Group: "group", Limit: 1}, "GroupDeadLetterParams.All": {Group: "group", All: true, Positions: []int64{1}},
		} {
			_, err := f.Outbox.DiscardGroupDeadLetters(f.Context(), params)
			f.RequireField(err, field)
		}
		_, err = f.Outbox.GroupDeadLetters(f.Context(), outbox.GroupDeadLetterParams{All: true})
		f.RequireField(err, "GroupDeadLetterParams.Positions")
	})
}

// What is discarded, or belongs to a group that is forgotten, is purged with the rest. A permanent error takes one delivery.
func TestGroup_PermanentErrorsAndDiscarding(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		for _, group := range []string{"one", "two"} {
			s := f.GroupSubscriber(f.DB.DB, group, nil)
			messages := f.Subscribe(s, "orders")
			if group == "one" {
				f.LogN("orders", 0, 5)
				f.Stamp()
			}
			for range 5 {
				f.nack(f.Receive(messages), outbox.Permanent(suite.ErrBoom))
			}
			f.Eventually(func() bool { return len(f.deadLetters(group)) == 5 }, suite.Patience, time.Millisecond)
			f.NoError(s.Close())
		}
		var listed []string
		for params := (outbox.GroupDeadLetterParams{Limit: 3}); ; { // a page ends in the middle of what two groups gave up
			letters, err := f.Outbox.GroupDeadLetters(f.Context(), params)
			f.NoError(err)
			if len(letters) == 0 {
				break
			}
			for i := range letters {
				listed = append(listed, letters[i].Group+letters[i].UUID)
			}
			params.After = letters[len(letters)-1].Position
		}
		f.Equal([]string{"one0", "two0", "one1", "two1", "one2", "two2", "one3", "two3", "one4", "two4"}, listed)
		purge := func(want int) {
			t.Helper()
			n, err := f.Outbox.Purge(f.Context(), outbox.PurgeParams{Log: true})
			f.NoError(err)
			f.Equal(want, n)
		}
		n, err := f.Outbox.DiscardGroupDeadLetters(f.Context(), outbox.GroupDeadLetterParams{Group: "one", Positions: []int64{1, 2, 99}})
		f.NoError(err)
		f.Equal(2, n)
		f.Equal(suite.Numbered(2, 5), f.deadLetters("one"))
		purge(0)
		f.RequireField(f.Outbox.ForgetGroup(f.Context(), ""), "group")
		f.NoError(f.Outbox.ForgetGroup(f.Context(), "two"))
		f.Empty(f.deadLetters("two"))
		f.Len(f.deadLetters("one"), 3)
		purge(2)
		n, err = f.Outbox.DiscardGroupDeadLetters(f.Context(), outbox.GroupDeadLetterParams{Group: "one", Topic: "orders", All: true})
		f.NoError(err)
		f.Equal(3, n)
		purge(3)
		f.Zero(f.Count())
	})
}

// With Block the group stays, and says so at error level.
func TestGroup_Block(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.LogN("orders", 0, 2)
		f.Stamp()
		book := suite.NewLogBook()
		s := f.GroupSubscriber(f.DB.DB, "group", book, maxAttempts(2), func(c *outbox.SubscriberConfig) { c.OnGroupFailure = outbox.Block })
		messages := f.Subscribe(s, "orders")
		for attempt := 1; attempt <= 5; attempt++ {
			msg := f.Receive(messages)
			f.Equal("0", msg.UUID)
			f.Equal(attempt, f.Delivery(msg).Attempt())
			f.nack(msg, suite.ErrBoom)
		}
		msg := f.Receive(messages)
		f.Len(book.At("ERROR", "holds up its consumer group"), 4)
		msg.Ack()
		msg = f.Receive(messages)
		f.Equal("1", msg.UUID)
		msg.Ack()
		f.Empty(f.deadLetters("group"))
		_, err := outbox.NewSubscriber(f.DB.DB, outbox.SubscriberConfig{Dialect: f.Config.Dialect, OnGroupFailure: 7}, nil)
		f.RequireField(err, "SubscriberConfig.OnGroupFailure")
	})
}

// Attempts are in the database: another reader of the group goes on counting, also after one that was killed by the message.
// An outage of what the handler needs spends none, and neither does a Close.
func TestGroup_AttemptsOutliveTheReader(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.LogN("orders", 0, 2)
		f.Stamp()
		next := func(attempt int) (*outbox.Subscriber, *message.Message) {
			t.Helper()
			s := f.GroupSubscriber(f.DB.DB, "group", nil, maxAttempts(4))
			msg := f.Receive(f.Subscribe(s, "orders"))
			f.Equal("0", msg.UUID)
			f.Equal(attempt, f.Delivery(msg).Attempt())
			return s, msg
		}
		s, msg := next(1)
		f.nack(msg, suite.ErrBoom)
		f.NoError(s.Close())
		s, msg = next(2)
		f.nack(msg, outbox.Unavailable(suite.ErrBoom))
		f.NoError(s.Close())
		s, _ = next(2) // which is not answered before Close gives up
		f.NoError(s.Close())

		die := func() { // as far as the database can see
			f.Exec("UPDATE %s SET {owner_token} = '%s', {locked_until} = {past}", f.LogTable("group"), base.NewOwnerToken())
		}
		for _, attempt := range []int{2, 2, 3, 4} { // the first to die follows one that gave its lease back, and counts nothing
			_, msg = next(attempt)
			die()
			defer msg.Ack() // too late
		}
		last := f.GroupSubscriber(f.DB.DB, "group", nil, maxAttempts(4))
		msg = f.Receive(f.Subscribe(last, "orders"))
		f.Equal("1", msg.UUID, "the one that kills is not handed out again")
		msg.Ack()
		letters, err := f.Outbox.GroupDeadLetters(f.Context(), outbox.GroupDeadLetterParams{Group: "group"})
		f.NoError(err)
		f.Len(letters, 1)
		f.Contains(letters[0].Reason, "ended before it acked or nacked")
	})
}

// The handler's transaction moves the group on, or gives the message up, or does nothing.
func TestGroup_SettleTx(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.LogN("orders", 0, 4)
		f.Stamp()
		s := f.GroupSubscriber(f.DB.DB, "group", nil)
		messages := f.Subscribe(s, "orders")
		settle := func(msg *message.Message, outcome outbox.Outcome, after error) error {
			return outbox.InTx(f.Context(), f.DB.DB, func(ctx context.Context, tx *sql.Tx) error {
				if _, err := f.Outbox.Enqueue(ctx, tx, outbox.Message{Topic: "effect", UUID: msg.UUID}); err != nil {
					return err
				}
				return errors.Join(f.Delivery(msg).SettleTx(ctx, tx, outcome), after)
			})
		}
		position := func() int64 { return f.Number("SELECT MAX({position}) FROM %s", f.LogTable("group")) }

		msg := f.Receive(messages)
		f.ErrorIs(settle(msg, outbox.Ack, suite.ErrBoom), suite.ErrBoom)
		f.Zero(position())
		f.NoError(settle(msg, outbox.Ack, nil))
		f.Equal(int64(1), position(), "before the ack")
		msg.Ack()

		msg = f.Receive(messages)
		f.Equal("1", msg.UUID)
		f.ErrorIs(settle(msg, outbox.Ack, suite.ErrBoom), suite.ErrBoom)
		msg.Nack()
		msg = f.Receive(messages)
		f.Equal("1", msg.UUID, "rolled back and nacked")
		f.Equal(2, f.Delivery(msg).Attempt())
		f.ErrorIs(settle(msg, outbox.Ack, suite.ErrBoom), suite.ErrBoom)
		msg.Ack() // a second try of the handler's own, without a transaction

		msg = f.Receive(messages)
		f.Equal("2", msg.UUID)
		f.Delivery(msg).SetErr(suite.ErrBoom)
		f.NoError(settle(msg, outbox.Fail, nil))
		msg.Ack()
		f.Equal([]string{"2"}, f.deadLetters("group"))

		msg = f.Receive(messages)
		f.Equal("3", msg.UUID)
		err := outbox.InTx(f.Context(), f.DB.DB, func(ctx context.Context, tx *sql.Tx) error {
			return seam.Delivery(f.Delivery(msg)).ReleaseTx(ctx, tx, time.Second)
		})
		f.RequireField(err, "ReleaseTx")
		n, err := f.Outbox.RequeueGroupDeadLetters(f.Context(), outbox.GroupDeadLetterParams{Group: "group", All: true})
		f.NoError(err)
		f.Equal(1, n)
		msg.Ack()
		msg = f.Receive(messages)
		f.Equal("2", msg.UUID)
		f.NoError(settle(msg, outbox.Ack, nil))
		f.Empty(f.deadLetters("group"))
		msg.Ack()
		f.NoError(s.Close())
		f.Equal(int64(4), position())
		f.Equal([]string{"0", "2", "2"}, f.UUIDsOf("effect"))

		f.LogN("orders", 4, 5)
		f.Stamp()
		s = f.GroupSubscriber(f.DB.DB, "group", nil)
		msg = f.Receive(f.Subscribe(s, "orders"))
		f.Exec("UPDATE %s SET {owner_token} = '%s'", f.LogTable("group"), base.NewOwnerToken())
		f.ErrorIs(settle(msg, outbox.Ack, nil), outbox.ErrLeaseLost)
		msg.Ack()
	})
}

// The wake-ups of other processes reach every reader of a Subscriber, whichever of them takes them from the channel.
func TestTrap_WakeupsOfSeveralTopics(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		wakeups, published := make(chan string, 10), make(chan string, 1)
		s, err := outbox.NewSequencer(f.DB.DB, outbox.SequencerConfig{ // another process, as far as wake-ups in this one go
			Dialect: f.Config.Dialect, Schema: f.Config.Schema, Store: "elsewhere", PollInterval: time.Hour, Wakeups: published}, nil)
		f.NoError(err)
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() { _ = s.Run(ctx) })
		defer running.Wait()
		defer cancel()
		var idle sync.WaitGroup
		idle.Add(8)
		pool := f.readsOf(idle.Done)
		sub := f.GroupSubscriber(pool, "group", nil, func(c *outbox.SubscriberConfig) {
			c.Store, c.PollInterval, c.MaxPollInterval, c.Wakeups = "here", time.Hour, time.Hour, wakeups
		})
		var topics []<-chan *message.Message
		var together []outbox.Message
		for i := range 8 {
			topics = append(topics, f.Subscribe(sub, fmt.Sprint(i)))
			together = append(together, outbox.Message{UUID: fmt.Sprint(i), Topic: fmt.Sprint(i)})
		}
		idle.Wait() // each has read once, found nothing, and waits for an hour
		there := f.NewOutbox(f.DB.DB, func(c *outbox.Config) { c.Log, c.Store = outbox.LogOnly, "a third process" })
		_, err = there.Enqueue(f.Context(), f.DB.DB, together...)
		f.NoError(err)
		published <- "0"
		f.Stamped(8)
		for i := range topics {
			wakeups <- fmt.Sprint(i)
		}
		for i := range topics {
			msg := f.Receive(topics[i])
			f.Equal(fmt.Sprint(i), msg.UUID)
			msg.Ack()
		}
	})
}

// A handler that hangs is told, left behind, and its message spends an attempt as in the queue; the group goes on.
func TestGroup_AHandlerThatHangs(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.LogN("orders", 0, 2)
		f.Stamp()
		told := make(chan outbox.HandledEvent, 10)
		s := f.GroupSubscriber(f.DB.DB, "group", nil, maxAttempts(2), func(c *outbox.SubscriberConfig) {
			c.MaxHandlerTime, c.DrainTimeout = 10*time.Millisecond, 10*time.Millisecond
			c.Hooks.OnHandlerTimeout = func(e outbox.HandledEvent) { told <- e }
		})
		messages := f.Subscribe(s, "orders")
		for attempt, outcome := range []outbox.Outcome{outbox.Retry, outbox.Fail} {
			msg := f.Receive(messages)
			f.Equal("0", msg.UUID)
			suite.Take(f.T, msg.Context().Done(), "the end of the handler's context")
			event, _ := suite.Take(f.T, told, "the hook")
			f.Equal([]any{"orders", attempt + 1, outcome}, []any{event.Topic, event.Attempt, event.Outcome})
			defer msg.Ack() // too late
		}
		msg := f.Receive(messages)
		f.Equal("1", msg.UUID)
		msg.Ack()
		f.Equal([]string{"0"}, f.deadLetters("group"))
	})
}
