package subscriber_test

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/faults"
)

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
