package conformance

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
		pool := faults.Open(t, f.db, hung.hooks(isSettle))
		s := f.subscriberOn(pool, nil, func(c *outbox.SubscriberConfig) {
			c.LeaseDuration, c.MaxInFlight, c.DrainTimeout = lease, topics*each, drain
		})
		var channels []<-chan *message.Message
		for i := range topics {
			f.enqueueN(fmt.Sprintf("topic %d", i), each)
			channels = append(channels, f.subscribe(s, fmt.Sprintf("topic %d", i)))
		}
		f.receive(channels[0]).Ack()
		take(f, hung.began, "the settle that hangs")
		began := time.Now()
		for _, messages := range channels {
			go func() {
				for msg := range messages {
					msg.Ack()
				}
			}()
		}
		f.Eventually(func() bool { return len(f.rows("{status} = 2 AND {topic} <> 'topic 0'")) == (topics-1)*each }, patience, 10*time.Millisecond,
			"the other topics are not settled")
		f.Less(time.Since(began), lease)
		closing := time.Now()
		f.NoError(s.Close())
		f.Less(time.Since(closing), drain+15*time.Second)
		f.Len(f.rows("{status} = 2 AND {retry_count} = 0"), topics*each, "nothing that was acked is dropped")
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
		pool := faults.Open(t, f.db, hooks)
		f.enqueueN("orders", n)
		messages := f.subscribe(f.subscriberOn(pool, nil, leaseOf(4*time.Second)), "orders")
		received := f.receiveN(messages, n)
		take(f, hung.began, "the renewal that hangs")
		select {
		case <-renewed:
		case again := <-messages:
			f.FailNow("delivered again while the first handler lives", "%v: attempt %d", again.UUID, f.delivery(again).Attempt())
		}
		for _, msg := range received {
			if msg.Context().Err() == nil { // or else the machine was too busy to renew in time
				msg.Ack()
				f.Zero(f.becomes(f.delivery(msg).MessageID(), outbox.Done).retries)
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
		pool := faults.Open(t, f.db, faults.Hooks{Before: func(_ context.Context, s faults.Statement) error {
			if isRenewal(s) && (last == "" || last == s.Text) { // the first of its statements
				last = s.Text
				sent <- time.Now()
			}
			return nil
		}})
		f.enqueueN("orders", 1)
		msg := f.receive(f.subscribe(f.subscriberOn(pool, nil, leaseOf(lease)), "orders"))
		before, _ := take(f, sent, "a renewal")
		var gaps []time.Duration
		for range 5 {
			now, _ := take(f, sent, "a renewal")
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
	f.t.Helper()
	again := f.receive(messages)
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
	f.t.Helper()
	for _, msg := range received {
		take(f, msg.Context().Done(), "the end of the context of a message whose lease has run out")
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
		pool := faults.Open(t, f.db, faults.Hooks{
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
		f.enqueueN("orders", n)
		messages := f.subscribe(f.subscriberOn(pool, nil, leaseOf(2*time.Second)), "orders")
		received := f.receiveN(messages, n)
		down.Store("down", true)
		f.ended(received)
		f.Eventually(func() bool { return len(f.rows("{status} = 1 AND {locked_until} < {now}")) == n }, patience, 10*time.Millisecond)
		for len(gaveBack) > 0 {
			<-gaveBack
		}
		down.Delete("down")
		for range 3 {
			take(f, gaveBack, "a claim that gives back expired leases")
		}
		select {
		case again := <-messages:
			f.FailNow("delivered again before its first handler has returned", "%v: attempt %d", again.UUID, f.delivery(again).Attempt())
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
			f.Equal(1, f.delivery(again).Attempt(), "the outage spent an attempt")
			again.Ack()
		}
		f.Eventually(func() bool { return len(f.rows("{status} = 2 AND {retry_count} = 0")) == n }, patience, 5*time.Millisecond)
	})
}

// The same for a transaction of the application, which on SQLite keeps all others from writing, and elsewhere locks rows.
func TestTrap_ATransactionLongerThanTheLease(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		const n = 20
		f.enqueueN("orders", n)
		messages := f.subscribe(f.subscriber(leaseOf(2*time.Second)), "orders")
		received := f.receiveN(messages, n)
		tx, err := f.db.BeginTx(f.ctx(), nil)
		f.NoError(err)
		defer func() { _ = tx.Rollback() }() // for a failure before it
		f.execOn(tx, "UPDATE {outbox_lease} SET {locked_until} = {locked_until}")
		f.ended(received)
		f.NoError(tx.Rollback())
		for _, msg := range received {
			msg.Nack()
		}
		for range n {
			f.handedAgain(messages, received).Ack()
		}
		f.Eventually(func() bool { return len(f.rows("{status} = 2")) == n }, patience, 5*time.Millisecond)
	})
}

func (f *fixture) settleAndRollBack(msg *message.Message) {
	f.t.Helper()
	err := outbox.InTx(f.ctx(), f.db.DB, func(ctx context.Context, tx *sql.Tx) error {
		return errors.Join(f.delivery(msg).SettleTx(ctx, tx, outbox.Ack), errBoom)
	})
	f.ErrorIs(err, errBoom)
	f.NotErrorIs(err, outbox.ErrLeaseLost)
}

// A retry middleware runs the handler again after a transaction that was rolled back. What it acks then counts.
func TestTrap_AckAfterARolledBackSettleTx(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		id := f.enqueueN("orders", 1)[0]
		msg := f.receive(f.subscribe(f.subscriber(leaseOf(time.Hour)), "orders"))
		f.settleAndRollBack(msg)
		msg.Ack()
		f.Zero(f.becomes(id, outbox.Done).retries)
	})
}

func TestTrap_NoRenewalAfterARolledBackSettleTx(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		id := f.enqueueN("orders", 1)[0]
		messages := f.subscribe(f.subscriber(leaseOf(4*time.Second)), "orders")
		msg := f.receive(messages)
		f.settleAndRollBack(msg)
		first := f.row(id)
		f.Eventually(func() bool {
			f.Empty(messages, "delivered again")
			return f.row(id).lockedUntil.After(first.lockedUntil)
		}, patience, 10*time.Millisecond, "the lease is not renewed")
		f.Zero(f.row(id).retries)
		msg.Ack()
		f.becomes(id, outbox.Done)
	})
}

// A handler that has committed its own settlement has succeeded: a renewal that comes too late to find the lease does not
// end its context.
func TestTrap_SettleTxCommitsBesideARenewal(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.needs(concurrentWriters)
		renewing, committed := make(chan struct{}, 100), make(chan struct{})
		pool := faults.Open(t, f.db, faults.Hooks{Before: func(_ context.Context, s faults.Statement) error {
			if isRenewal(s) {
				renewing <- struct{}{}
				<-committed
			}
			return nil
		}})
		ids := f.enqueueN("orders", 2)
		s := f.subscriberOn(pool, nil, leaseOf(4*time.Second))
		received := f.receiveN(f.subscribe(s, "orders"), 2)
		take(f, renewing, "a renewal that has looked what is held")
		settled := received[0]
		f.NoError(outbox.InTx(f.ctx(), f.db.DB, func(ctx context.Context, tx *sql.Tx) error {
			return f.delivery(settled).SettleTx(ctx, tx, outbox.Ack)
		}))
		close(committed)
		take(f, renewing, "the next renewal")
		f.NoError(settled.Context().Err())
		settled.Ack()
		received[1].Ack()
		f.becomes(ids[0], outbox.Done)
		f.becomes(ids[1], outbox.Done)
	})
}

// What happens to an event that is counted: OnSettle tells of what has become of messages, once each.
func TestTrap_OnSettleCountsWhatIsCommitted(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		events := make(chan outbox.SettleEvent, 100)
		book := newLogBook()
		s := f.subscriberOn(f.db.DB, book, func(c *outbox.SubscriberConfig) {
			c.Hooks.OnSettle = func(e outbox.SettleEvent) { events <- e }
		})
		messages := f.subscribe(s, "orders")
		next := func() outbox.SettleEvent {
			e, _ := take(f, events, "an event")
			return e
		}

		f.enqueueN("orders", 1)
		msg := f.receive(messages)
		f.settleAndRollBack(msg)
		f.Empty(events, "nothing is settled yet")
		msg.Nack()
		f.Equal(map[outbox.Outcome]int{outbox.Retry: 1}, next().Outcomes)

		msg = f.receive(messages)
		f.NoError(outbox.InTx(f.ctx(), f.db.DB, func(ctx context.Context, tx *sql.Tx) error {
			return f.delivery(msg).SettleTx(ctx, tx, outbox.Fail)
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
	book := newLogBook()
	var lost, lostCommit atomic.Bool
	pool := faults.Open(f.t, f.db, faults.Hooks{Answer: func(_ context.Context, s faults.Statement) error {
		if isSettle(s) && lost.CompareAndSwap(true, false) {
			lostCommit.Store(true)
		}
		commits := s.Text == faults.Commit || f.config.Dialect.Name() != "sqlite" && isSettle(s) // a procedure commits by itself
		if commits && lostCommit.CompareAndSwap(true, false) {
			return errors.New("connection reset by peer")
		}
		return nil
	}})
	s := f.subscriberOn(pool, book, func(c *outbox.SubscriberConfig) {
		c.MaxInFlight = maxInFlight
		c.Hooks.OnSettle = func(e outbox.SettleEvent) { events <- e }
	})
	messages := f.subscribe(s, topic)
	next := func() outbox.SettleEvent {
		e, _ := take(f, events, "an event")
		return e
	}
	id := f.enqueueN(topic, 1)[0]
	msg := f.receive(messages)
	lost.Store(true)
	msg.Ack()
	f.Error(next().Err, "the answer is lost")
	e := next()
	f.Equal([]int{0, 1}, []int{e.Refused, e.Unknown}, "%s: %v", topic, book.lines())
	f.becomes(id, outbox.Done)
	f.NoError(s.Close())
	f.Empty(book.at("INFO", "Leases were lost"))
	f.Empty(book.at("INFO", "Lost the lease"))
}

// A handler that hangs loses its message in the end, and somebody is told.
func TestTrap_AHandlerThatHangs(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		told := make(chan outbox.HandledEvent, 10)
		id := f.enqueueN("orders", 1)[0]
		s := f.subscriber(func(c *outbox.SubscriberConfig) {
			c.MaxHandlerTime, c.DrainTimeout, c.MaxAttempts = 100*time.Millisecond, 50*time.Millisecond, 2
			c.Hooks.OnHandlerTimeout = func(e outbox.HandledEvent) { told <- e }
		})
		messages := f.subscribe(s, "orders")
		deaf := f.receive(messages)
		take(f, deaf.Context().Done(), "the end of the context of a handler that hangs")
		e, _ := take(f, told, "a word of it")
		f.Equal([]any{"orders", id, 1, outbox.Retry}, []any{e.Topic, e.MessageID, e.Attempt, e.Outcome})
		f.GreaterOrEqual(e.Took, 150*time.Millisecond)
		second := f.receive(messages)
		f.Equal(2, f.delivery(second).Attempt())
		deaf.Ack() // too late
		e, _ = take(f, told, "a word of the last attempt")
		f.Equal(outbox.Fail, e.Outcome)
		r := f.becomes(id, outbox.Failed)
		f.Contains(r.lastError, "MaxHandlerTime")
	})
}
