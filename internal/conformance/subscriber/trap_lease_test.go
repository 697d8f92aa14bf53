package subscriber_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/faults"
)

// The traps of leases: statements that hang, gaps in renewing, and who has a message meanwhile.

// An operation is known by its argument, whatever the dialect makes of it.
func isOperation(s faults.Statement, has, lacks string) bool {
	return slices.ContainsFunc(s.Args, func(value any) bool {
		arg, _ := value.(string)
		return strings.Contains(arg, has) && (lacks == "" || !strings.Contains(arg, lacks))
	})
}

func isSettle(s faults.Statement) bool   { return isOperation(s, `"delete_acked":`, "") }
func isGiveBack(s faults.Statement) bool { return isOperation(s, `"give_back":`, `"give_back":0`) }

func isRenewal(s faults.Statement) bool { return isOperation(s, `"groups":`, "delete_acked") }

// A hanging statement answers nothing until its context ends. The first that matches hangs.
type hanging struct {
	once  sync.Once
	began chan struct{}
}

func newHanging() *hanging { return &hanging{began: make(chan struct{})} }

func (h *hanging) hooks(matches func(faults.Statement) bool) faults.Hooks {
	return faults.Hooks{Before: func(ctx context.Context, s faults.Statement) (err error) {
		if matches(s) {
			h.once.Do(func() {
				close(h.began)
				<-ctx.Done()
				err = ctx.Err()
			})
		}
		return err
	}}
}

// One settle that hangs holds up no other, and its own messages no longer than a part of the lease.
func TestTrap_HungSettle(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		const topics, each, lease, drain = 10, 100, 20 * time.Second, time.Second
		hung := newHanging()
		pool := faults.Open(t, f.DB, hung.hooks(isSettle))
		s := f.SubscriberOn(pool, nil, func(c *outbox.SubscriberConfig) {
			c.LeaseDuration, c.MaxInFlight, c.DrainTimeout = lease, topics*each, drain
		})
		var channels []<-chan *message.Message
		for i := range topics {
			f.EnqueueN(fmt.Sprintf("topic %d", i), each)
			channels = append(channels, f.Subscribe(s, fmt.Sprintf("topic %d", i)))
		}
		f.Receive(channels[0]).Ack()
		suite.Take(f.T, hung.began, "the settle that hangs")
		began := time.Now()
		for _, messages := range channels {
			go func() {
				for msg := range messages {
					msg.Ack()
				}
			}()
		}
		f.Eventually(func() bool { return len(f.Rows("{status} = 2 AND {topic} <> 'topic 0'")) == (topics-1)*each }, suite.Patience, 10*time.Millisecond,
			"the other topics are not settled")
		f.Less(time.Since(began), lease)
		closing := time.Now()
		f.NoError(s.Close())
		f.Less(time.Since(closing), drain+15*time.Second)
		f.Len(f.Rows("{status} = 2 AND {retry_count} = 0"), topics*each, "nothing that was acked is dropped")
	})
}

// One renewal that hangs costs no lease: the next one is in time.
func TestTrap_HungRenewal(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		const n = 10
		hung := newHanging()
		hooks := hung.hooks(isRenewal)
		renewed := make(chan struct{}, 100)
		hooks.After = func(_ context.Context, s faults.Statement, err error) {
			if isRenewal(s) && err == nil {
				renewed <- struct{}{}
			}
		}
		pool := faults.Open(t, f.DB, hooks)
		f.EnqueueN("orders", n)
		messages := f.Subscribe(f.SubscriberOn(pool, nil, suite.LeaseOf(4*time.Second)), "orders")
		received := f.ReceiveN(messages, n)
		suite.Take(f.T, hung.began, "the renewal that hangs")
		select {
		case <-renewed:
		case again := <-messages:
			f.FailNow("delivered again while the first handler lives", "%v: attempt %d", again.UUID, f.Delivery(again).Attempt())
		}
		for _, msg := range received {
			if msg.Context().Err() == nil { // or else the machine was too busy to renew in time
				msg.Ack()
				f.Zero(f.Becomes(f.Delivery(msg).MessageID(), outbox.Done).Retries)
			}
		}
	})
}

// A lease is renewed when a quarter of it has run, counted from before the call that gave it.
func TestTrap_HowOftenALeaseIsRenewed(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		const lease = 4 * time.Second
		sent := make(chan time.Time, 100)
		var last string
		pool := faults.Open(t, f.DB, faults.Hooks{Before: func(_ context.Context, s faults.Statement) error {
			if isRenewal(s) && (last == "" || last == s.Text) { // the first of its statements
				last = s.Text
				sent <- time.Now()
			}
			return nil
		}})
		f.EnqueueN("orders", 1)
		msg := f.Receive(f.Subscribe(f.SubscriberOn(pool, nil, suite.LeaseOf(lease)), "orders"))
		before, _ := suite.Take(f.T, sent, "a renewal")
		var gaps []time.Duration
		for range 5 {
			now, _ := suite.Take(f.T, sent, "a renewal")
			gaps = append(gaps, now.Sub(before))
			before = now
		}
		slices.Sort(gaps)
		t.Logf("lease %v, times between renewals %v", lease, gaps)
		f.Less(gaps[0], lease*3/8) // a busy machine only makes them longer
		msg.Ack()
	})
}

// handedAgain receives a message again: not before the context of its first handler has ended.
func (f *fixture) handedAgain(messages <-chan *message.Message, first []*message.Message) *message.Message {
	f.T.Helper()
	again := f.Receive(messages)
	for _, msg := range first {
		if msg.UUID == again.UUID {
			f.Error(msg.Context().Err(), "%s is delivered again while its first handler lives", msg.UUID)
			return again
		}
	}
	f.FailNow("another message", again.UUID)
	return nil
}

// ended waits until the contexts of all have ended.
func (f *fixture) ended(received []*message.Message) {
	f.T.Helper()
	for _, msg := range received {
		suite.Take(f.T, msg.Context().Done(), "the end of the context of a message whose lease has run out")
		f.ErrorIs(context.Cause(msg.Context()), outbox.ErrLeaseLost)
	}
}

// When the database comes back a worker renews before it gives anything back: it does not take its own messages from
// its handlers, whose contexts have ended, until they return; and an outage spends no attempt.
func TestTrap_OutageLongerThanTheLease(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		const n = 20
		var down sync.Map
		gaveBack := make(chan struct{}, 1000)
		pool := faults.Open(t, f.DB, faults.Hooks{
			Before: func(_ context.Context, s faults.Statement) error {
				if _, yes := down.Load("down"); yes && !strings.Contains(strings.ToUpper(s.Text), "ROLLBACK") {
					return errors.New("connection refused")
				}
				return nil
			},
			After: func(_ context.Context, s faults.Statement, err error) {
				if isGiveBack(s) && err == nil {
					gaveBack <- struct{}{}
				}
			},
		})
		f.EnqueueN("orders", n)
		messages := f.Subscribe(f.SubscriberOn(pool, nil, suite.LeaseOf(2*time.Second)), "orders")
		received := f.ReceiveN(messages, n)
		down.Store("down", true)
		f.ended(received)
		f.Eventually(func() bool { return len(f.Rows("{status} = 1 AND {locked_until} < {now}")) == n }, suite.Patience, 10*time.Millisecond)
		for len(gaveBack) > 0 {
			<-gaveBack
		}
		down.Delete("down")
		for range 3 {
			suite.Take(f.T, gaveBack, "a claim that gives back expired leases")
		}
		select {
		case again := <-messages:
			f.FailNow("delivered again before its first handler has returned", "%v: attempt %d", again.UUID, f.Delivery(again).Attempt())
		default:
		}
		for i, msg := range received { // whatever they say: their contexts have ended in the middle
			if i%2 == 0 {
				msg.Ack()
			} else {
				msg.Nack()
			}
		}
		for range n {
			again := f.handedAgain(messages, received)
			f.Equal(1, f.Delivery(again).Attempt(), "the outage spent an attempt")
			again.Ack()
		}
		f.Eventually(func() bool { return len(f.Rows("{status} = 2 AND {retry_count} = 0")) == n }, suite.Patience, 5*time.Millisecond)
	})
}

// The same for a transaction of the application, which on SQLite keeps all others from writing, and elsewhere locks rows.
func TestTrap_ATransactionLongerThanTheLease(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		const n = 20
		f.EnqueueN("orders", n)
		messages := f.Subscribe(f.Subscriber(suite.LeaseOf(2*time.Second)), "orders")
		received := f.ReceiveN(messages, n)
		tx, err := f.DB.BeginTx(f.Context(), nil)
		f.NoError(err)
		defer func() { _ = tx.Rollback() }() // for a failure before it
		f.ExecOn(tx, "UPDATE {outbox_lease} SET {locked_until} = {locked_until}")
		f.ended(received)
		f.NoError(tx.Rollback())
		for _, msg := range received {
			msg.Nack()
		}
		for range n {
			f.handedAgain(messages, received).Ack()
		}
		f.Eventually(func() bool { return len(f.Rows("{status} = 2")) == n }, suite.Patience, 5*time.Millisecond)
	})
}

func (f *fixture) settleAndRollBack(msg *message.Message) {
	f.T.Helper()
	err := outbox.InTx(f.Context(), f.DB.DB, func(ctx context.Context, tx *sql.Tx) error {
		return errors.Join(f.Delivery(msg).SettleTx(ctx, tx, outbox.Ack), suite.ErrBoom)
	})
	f.ErrorIs(err, suite.ErrBoom)
	f.NotErrorIs(err, outbox.ErrLeaseLost)
}

// A retry middleware runs the handler again after a transaction that was rolled back. What it acks then counts.
func TestTrap_AckAfterARolledBackSettleTx(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		id := f.EnqueueN("orders", 1)[0]
		msg := f.Receive(f.Subscribe(f.Subscriber(suite.LeaseOf(time.Hour)), "orders"))
		f.settleAndRollBack(msg)
		msg.Ack()
		f.Zero(f.Becomes(id, outbox.Done).Retries)
	})
}

func TestTrap_NoRenewalAfterARolledBackSettleTx(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		id := f.EnqueueN("orders", 1)[0]
		messages := f.Subscribe(f.Subscriber(suite.LeaseOf(4*time.Second)), "orders")
		msg := f.Receive(messages)
		f.settleAndRollBack(msg)
		first := f.Row(id)
		f.Eventually(func() bool {
			f.Empty(messages, "delivered again")
			return f.Row(id).LockedUntil.After(first.LockedUntil)
		}, suite.Patience, 10*time.Millisecond, "the lease is not renewed")
		f.Zero(f.Row(id).Retries)
		msg.Ack()
		f.Becomes(id, outbox.Done)
	})
}

// A handler that has committed its own settlement has succeeded: a renewal that comes too late to find the lease does not
// end its context.
func TestTrap_SettleTxCommitsBesideARenewal(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Needs(suite.ConcurrentWriters)
		renewing, committed := make(chan struct{}, 100), make(chan struct{})
		pool := faults.Open(t, f.DB, faults.Hooks{Before: func(_ context.Context, s faults.Statement) error {
			if isRenewal(s) {
				renewing <- struct{}{}
				<-committed
			}
			return nil
		}})
		ids := f.EnqueueN("orders", 2)
		s := f.SubscriberOn(pool, nil, suite.LeaseOf(4*time.Second))
		received := f.ReceiveN(f.Subscribe(s, "orders"), 2)
		suite.Take(f.T, renewing, "a renewal that has looked what is held")
		settled := received[0]
		f.NoError(outbox.InTx(f.Context(), f.DB.DB, func(ctx context.Context, tx *sql.Tx) error {
			return f.Delivery(settled).SettleTx(ctx, tx, outbox.Ack)
		}))
		close(committed)
		suite.Take(f.T, renewing, "the next renewal")
		f.NoError(settled.Context().Err())
		settled.Ack()
		received[1].Ack()
		f.Becomes(ids[0], outbox.Done)
		f.Becomes(ids[1], outbox.Done)
	})
}

// What happens to an event that is counted: OnSettle tells of what has become of messages, once each.
func TestTrap_OnSettleCountsWhatIsCommitted(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		events := make(chan outbox.SettleEvent, 100)
		book := suite.NewLogBook()
		s := f.SubscriberOn(f.DB.DB, book, func(c *outbox.SubscriberConfig) {
			c.Hooks.OnSettle = func(e outbox.SettleEvent) { events <- e }
		})
		messages := f.Subscribe(s, "orders")
		next := func() outbox.SettleEvent {
			e, _ := suite.Take(f.T, events, "an event")
			return e
		}

		f.EnqueueN("orders", 1)
		msg := f.Receive(messages)
		f.settleAndRollBack(msg)
		f.Empty(events, "nothing is settled yet")
		msg.Nack()
		f.Equal(map[outbox.Outcome]int{outbox.Retry: 1}, next().Outcomes)

		msg = f.Receive(messages)
		f.NoError(outbox.InTx(f.Context(), f.DB.DB, func(ctx context.Context, tx *sql.Tx) error {
			return f.Delivery(msg).SettleTx(ctx, tx, outbox.Fail)
		}))
		msg.Ack()
		e := next()
		f.Equal(1, e.Outcomes[outbox.Fail])
		f.Zero(e.Outcomes[outbox.Ack])
		f.Zero(e.Refused)
	})
}

// A settle whose answer is lost does not count as a lost lease, whether it runs alone or together with a claim.
func TestTrap_OnSettleAfterALostAnswer(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		for name, maxInFlight := range map[string]int{"alone": 0, "with a claim": 1} { // with a full window, the next claim takes the ack along
			f.settleAndLoseTheAnswer(name, maxInFlight)
		}
	})
}

func (f *fixture) settleAndLoseTheAnswer(topic string, maxInFlight int) {
	events := make(chan outbox.SettleEvent, 100)
	book := suite.NewLogBook()
	var lost, lostCommit atomic.Bool
	pool := faults.Open(f.T, f.DB, faults.Hooks{Answer: func(_ context.Context, s faults.Statement) error {
		if isSettle(s) && lost.CompareAndSwap(true, false) {
			lostCommit.Store(true)
		}
		commits := s.Text == faults.Commit || f.Config.Dialect.Name() != "sqlite" && isSettle(s) // a procedure commits by itself
		if commits && lostCommit.CompareAndSwap(true, false) {
			return errors.New("connection reset by peer")
		}
		return nil
	}})
	s := f.SubscriberOn(pool, book, func(c *outbox.SubscriberConfig) {
		c.MaxInFlight = maxInFlight
		c.Hooks.OnSettle = func(e outbox.SettleEvent) { events <- e }
	})
	messages := f.Subscribe(s, topic)
	next := func() outbox.SettleEvent {
		e, _ := suite.Take(f.T, events, "an event")
		return e
	}
	id := f.EnqueueN(topic, 1)[0]
	msg := f.Receive(messages)
	lost.Store(true)
	msg.Ack()
	f.Error(next().Err, "the answer is lost")
	e := next()
	f.Equal([]int{0, 1}, []int{e.Refused, e.Unknown}, "%s: %v", topic, book.Lines())
	f.Becomes(id, outbox.Done)
	f.NoError(s.Close())
	f.Empty(book.At("INFO", "Leases were lost"))
	f.Empty(book.At("INFO", "Lost the lease"))
}

// A handler that hangs loses its message in the end, and somebody is told.
func TestTrap_AHandlerThatHangs(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		told := make(chan outbox.HandledEvent, 10)
		id := f.EnqueueN("orders", 1)[0]
		s := f.Subscriber(func(c *outbox.SubscriberConfig) {
			c.MaxHandlerTime, c.DrainTimeout, c.MaxAttempts = 100*time.Millisecond, 50*time.Millisecond, 2
			c.Hooks.OnHandlerTimeout = func(e outbox.HandledEvent) { told <- e }
		})
		messages := f.Subscribe(s, "orders")
		deaf := f.Receive(messages)
		suite.Take(f.T, deaf.Context().Done(), "the end of the context of a handler that hangs")
		e, _ := suite.Take(f.T, told, "a word of it")
		f.Equal([]any{"orders", id, 1, outbox.Retry}, []any{e.Topic, e.MessageID, e.Attempt, e.Outcome})
		f.GreaterOrEqual(e.Took, 150*time.Millisecond)
		second := f.Receive(messages)
		f.Equal(2, f.Delivery(second).Attempt())
		deaf.Ack() // too late
		e, _ = suite.Take(f.T, told, "a word of the last attempt")
		f.Equal(outbox.Fail, e.Outcome)
		r := f.Becomes(id, outbox.Failed)
		f.Contains(r.LastError, "MaxHandlerTime")
	})
}
