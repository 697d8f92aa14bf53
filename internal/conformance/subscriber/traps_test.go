package subscriber_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/faults"
)

// The traps of workers: leases, closing, starvation, outages.

// shortLease leaves a busy machine time to renew: a quarter of it passes before that, and three quarters after.
const shortLease = 5 * time.Second

func TestTrap_ASlowHandlerKeepsItsLease(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		const lease = shortLease
		id := f.EnqueueN("orders", 1)[0]
		s := f.Subscriber(suite.LeaseOf(lease))
		msg := f.Receive(f.Subscribe(s, "orders"))
		first := f.Row(id)
		competing := f.Subscriber(suite.LeaseOf(lease))
		other := f.Subscribe(competing, "orders")
		f.Eventually(func() bool { // longer than the lease that it got
			f.Empty(other, "another has it too")
			return f.Now().After(first.LockedUntil)
		}, lease+suite.Patience, 5*time.Millisecond)
		f.Equal(first.Owner, f.Row(id).Owner)
		f.NoError(msg.Context().Err())
		msg.Ack()
		f.Zero(f.Becomes(id, outbox.Done).Retries)
	})
}

func TestTrap_AHandlerThatLostItsLeaseChangesNothing(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		const lease = shortLease
		ids := f.EnqueueN("orders", 2)
		s := f.Subscriber(suite.LeaseOf(lease))
		messages := f.Subscribe(s, "orders")
		received := f.ReceiveN(messages, 2)
		// Another worker has them, as after a pause of the whole process.
		thief := base.NewOwnerToken()
		f.Exec("UPDATE {outbox_state} SET {owner_token} = '%s'", thief)
		f.Exec("UPDATE {outbox_lease} SET {owner_token} = '%s', {locked_until} = {future}", thief)
		for _, msg := range received {
			suite.Take(f.T, msg.Context().Done(), "the end of the context of a message whose lease is lost")
		}
		received[0].Ack()
		received[1].Nack()
		f.NoError(s.Close())
		for _, id := range ids {
			r := f.Row(id)
			f.Equal(int(outbox.InProgress), r.Status)
			f.Equal(thief, r.Owner)
			f.Zero(r.Retries)
		}
	})
}

func TestTrap_CloseInTheMiddleOfABatch(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.EnqueueN("orders", 30)
		s := f.Subscriber(func(c *outbox.SubscriberConfig) {
			c.MaxInFlight, c.LeaseDuration, c.DrainTimeout = 20, time.Hour, suite.Patience
		})
		messages := f.Subscribe(s, "orders")
		received := f.ReceiveN(messages, 3)
		f.Eventually(func() bool { return len(f.Rows("{status} = 1")) == 20 }, suite.Patience, 2*time.Millisecond)
		closed := make(chan error, 3)
		for range 3 { // from many goroutines at once
			go func() { closed <- s.Close() }()
		}
		// What was never handed out is released at once, while handlers are still at work.
		f.Eventually(func() bool { return len(f.Rows("{status} = 1")) == 3 }, suite.Patience, 2*time.Millisecond)
		f.Len(f.Rows("{status} = 0 AND {retry_count} = 0"), 27, "releasing spends no attempt")
		f.Len(f.Claim("orders"), 27, "and they are due")
		_, open := suite.Take(f.T, messages, "the end of the channel")
		f.False(open)
		for _, msg := range received {
			f.NoError(msg.Context().Err(), "a handler in flight may finish")
		}
		f.Empty(closed)
		received[0].Ack()
		received[1].Nack()
		received[2].Ack()
		for range 3 {
			err, _ := suite.Take(f.T, closed, "Close")
			f.NoError(err)
		}
		f.Len(f.Rows("{status} = 2"), 2, "what handlers finished is settled")
		f.Len(f.Rows("{status} = 0 AND {retry_count} = 1"), 1)
		f.NoError(s.Close(), "again")
	})
}

func TestTrap_CloseIsBoundedByDrainTimeout(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		ids := f.EnqueueN("orders", 2)
		s := f.Subscriber(func(c *outbox.SubscriberConfig) { c.DrainTimeout = 50 * time.Millisecond })
		received := f.ReceiveN(f.Subscribe(s, "orders"), 2)
		f.NoError(s.Close())
		for i, msg := range received {
			f.Error(msg.Context().Err(), "the context of a handler that did not finish has ended")
			r := f.Row(ids[i])
			f.Equal(int(outbox.Ready), r.Status)
			f.Zero(r.Retries, "it was not its fault")
		}
		received[0].Ack() // too late
		f.Len(f.Claim("orders"), 2)
	})
}

func TestTrap_AContextOfOneSubscriptionEndsThatOneOnly(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		s := f.Subscriber(func(c *outbox.SubscriberConfig) { c.LeaseDuration = time.Hour })
		ctx, cancel := context.WithCancel(context.WithoutCancel(f.Context()))
		a, err := s.Subscribe(ctx, "a")
		f.NoError(err)
		b := f.Subscribe(s, "b")
		f.EnqueueN("a", 5)
		held := f.Receive(a)
		cancel()
		others := 4
		for msg := range a { // some may have been on their way
			msg.Ack()
			others--
		}
		f.NoError(held.Context().Err(), "the handler may finish")
		f.EnqueueN("b", 1)
		f.Receive(b).Ack()
		held.Ack()
		f.Eventually(func() bool {
			return len(f.Rows("{topic} = 'a' AND {status} = 0 AND {retry_count} = 0")) == others && len(f.Rows("{topic} = 'a' AND {status} = 1")) == 0
		}, suite.Patience, 2*time.Millisecond, "the others are released")
		again := f.Subscribe(s, "a")
		f.EnqueueN("a", 1)
		f.Receive(again).Ack()
	})
}

func TestTrap_ANackHoldsUpNoOther(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.EnqueueN("orders", 20)
		s := f.Subscriber(func(c *outbox.SubscriberConfig) {
			c.MaxInFlight = 2
			c.Backoff = func(int) time.Duration { return time.Hour }
		})
		messages := f.Subscribe(s, "orders")
		f.Receive(messages).Nack()
		for range 19 {
			f.Receive(messages).Ack()
		}
		f.Eventually(func() bool { return len(f.Rows("{status} = 2")) == 19 }, suite.Patience, 2*time.Millisecond)
		f.Len(f.Rows("{status} = 0 AND {retry_count} = 1"), 1)
	})
}

func TestTrap_AStuckTopicStarvesNoOther(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		s := f.Subscriber(func(c *outbox.SubscriberConfig) { c.MaxInFlight = 5 })
		stuck, fine := f.Subscribe(s, "stuck"), f.Subscribe(s, "zfine")
		f.EnqueueN("stuck", 50)
		f.ReceiveN(stuck, 4) // and never answers
		f.EnqueueN("zfine", 20)
		for range 20 {
			f.Receive(fine).Ack()
		}
	})
}

func TestTrap_TheHandlersOwnTransactionSettles(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		s := f.Subscriber()
		messages := f.Subscribe(s, "orders")
		id := f.EnqueueN("orders", 1)[0]

		// Rolled back: the message is delivered again, and what the handler wrote is gone.
		msg := f.Receive(messages)
		err := outbox.InTx(f.Context(), f.DB.DB, func(ctx context.Context, tx *sql.Tx) error {
			_, err := f.Outbox.Enqueue(ctx, tx, outbox.Message{Topic: "produced"})
			return errors.Join(err, f.Delivery(msg).SettleTx(ctx, tx, outbox.Ack), suite.ErrBoom)
		})
		f.ErrorIs(err, suite.ErrBoom)
		msg.Nack()

		msg = f.Receive(messages)
		f.NoError(outbox.InTx(f.Context(), f.DB.DB, func(ctx context.Context, tx *sql.Tx) error {
			_, err := f.Outbox.Enqueue(ctx, tx, outbox.Message{Topic: "produced"})
			return errors.Join(err, f.Delivery(msg).SettleTx(ctx, tx, outbox.Ack))
		}))
		f.Equal(int(outbox.Done), f.Row(id).Status, "from the commit on, without any ack")
		msg.Ack()
		f.Len(f.Claim("produced"), 1)

		// A lease that is lost is told, so that the handler rolls back.
		f.EnqueueN("orders", 1)
		msg = f.Receive(messages)
		f.Steal("{status} = 1")
		err = outbox.InTx(f.Context(), f.DB.DB, func(ctx context.Context, tx *sql.Tx) error { return f.Delivery(msg).SettleTx(ctx, tx, outbox.Ack) })
		f.ErrorIs(err, outbox.ErrLeaseLost)
		f.ErrorIs(f.Delivery(msg).SettleTx(f.Context(), nil, outbox.Ack), base.ErrNilDB)
		msg.Nack()
	})
}

func TestTrap_ALongTransactionOfAHandlerHoldsUpNoRenewal(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Needs(suite.ConcurrentWriters, suite.UpdatesSkipLocked)
		const lease = shortLease
		f.EnqueueN("orders", 2)
		s := f.Subscriber(suite.LeaseOf(lease))
		received := f.ReceiveN(f.Subscribe(s, "orders"), 2)
		tx, err := f.DB.BeginTx(f.Context(), nil)
		f.NoError(err)
		defer func() { _ = tx.Rollback() }()                                     // for a failure before the commit
		f.NoError(f.Delivery(received[0]).SettleTx(f.Context(), tx, outbox.Ack)) // its row stays locked
		other := f.Delivery(received[1]).MessageID()
		first := f.Row(other).LockedUntil
		f.Eventually(func() bool { return f.Row(other).LockedUntil.Sub(first) > 2*lease }, 10*lease+suite.Patience, 5*time.Millisecond)
		f.NoError(received[1].Context().Err())
		f.NoError(tx.Commit())
		received[0].Ack()
		received[1].Ack()
		f.Becomes(other, outbox.Done)
		f.Equal(int(outbox.Done), f.Row(f.Delivery(received[0]).MessageID()).Status)
		f.Zero(f.Row(f.Delivery(received[0]).MessageID()).Retries)
	})
}

func TestTrap_AnOutageOfTheDatabaseSpendsNoAttempt(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		var down atomic.Bool
		failed := make(chan struct{}, 1)
		pool := faults.Open(t, f.DB, faults.Hooks{Before: func(_ context.Context, s faults.Statement) error {
			if down.Load() && !strings.Contains(strings.ToUpper(s.Text), "ROLLBACK") {
				select {
				case failed <- struct{}{}:
				default:
				}
				return errors.New("connection refused")
			}
			return nil
		}})
		book := suite.NewLogBook()
		s := f.SubscriberOn(pool, book, func(c *outbox.SubscriberConfig) { c.LeaseDuration = time.Hour })
		messages := f.Subscribe(s, "orders")
		ids := f.EnqueueN("orders", 2)
		received := f.ReceiveN(messages, 2)
		down.Store(true)
		received[0].Ack()
		received[1].Ack()
		suite.Take(f.T, failed, "a failing statement")
		f.Await(book, "ERROR", "trying again")
		down.Store(false)
		for _, id := range ids {
			f.Zero(f.Becomes(id, outbox.Done).Retries)
		}
		f.EnqueueN("orders", 1)
		f.Receive(messages).Ack()
	})
}

// A second live subscription to a topic is refused, by the same Subscriber or by another of the process, unless it says that
// it means to compete.
func TestTrap_ASecondSubscriptionIsRefused(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		alone := func(c *outbox.SubscriberConfig) { c.AllowCompeting = false }
		s := f.Subscriber(alone)
		ctx, cancel := context.WithCancel(context.WithoutCancel(f.Context()))
		first, err := s.Subscribe(ctx, "orders")
		f.NoError(err)
		f.Subscribe(s, "others")
		for _, second := range []*outbox.Subscriber{s, f.Subscriber(alone)} {
			_, err := second.Subscribe(f.Context(), "orders")
			f.ErrorIs(err, outbox.ErrCompeting)
			f.ErrorContains(err, "\"orders\"")
		}
		f.Subscribe(f.Subscriber(), "orders") // which allows it
		f.EnqueueN("orders", 1)
		cancel()
		for range first {
		}
		f.Subscribe(f.SubscriberOn(f.DB.Reopen(t).DB, nil, alone), "orders") // another pool may be another database
	})
}

// One whose context has ended, or whose Subscriber closes, is not in the way.
func TestTrap_ASubscriptionThatHasEndedDoesNotCompete(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		alone := func(c *outbox.SubscriberConfig) { c.AllowCompeting = false }
		s := f.Subscriber(alone)
		ctx, cancel := context.WithCancel(context.WithoutCancel(f.Context()))
		_, err := s.Subscribe(ctx, "orders")
		f.NoError(err)
		cancel()
		f.Subscribe(s, "orders")
		f.NoError(s.Close())
		f.Subscribe(f.Subscriber(alone), "orders")
	})
}

// Two subscriptions to one topic compete: each message comes to one of them, and the log says so.
func TestTrap_ASecondSubscriptionCompetes(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		book := suite.NewLogBook()
		s := f.SubscriberOn(f.DB.DB, book)
		one, two := f.Subscribe(s, "orders"), f.Subscribe(s, "orders")
		f.Len(book.At("INFO", "competes"), 1)
		f.Equal("orders", book.At("INFO", "competes")[0].Fields["topic"])
		const n = 40
		f.EnqueueN("orders", n)
		var mu sync.Mutex
		seen := map[string]int{}
		all := make(chan struct{})
		for _, messages := range []<-chan *message.Message{one, two} {
			go func() {
				for msg := range messages {
					mu.Lock()
					seen[msg.UUID]++
					if len(seen) == n {
						close(all)
					}
					mu.Unlock()
					msg.Ack()
				}
			}()
		}
		suite.Take(f.T, all, "all messages")
		f.NoError(s.Close())
		for uuid, times := range seen {
			f.Equal(1, times, uuid)
		}
	})
}

func TestTrap_ASubscriberWithOneConnection(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		pool := f.DB.Reopen(t)
		pool.SetMaxOpenConns(1)
		s := f.SubscriberOn(pool.DB, nil, func(c *outbox.SubscriberConfig) { c.LeaseDuration = 10 * time.Second })
		a, b := f.Subscribe(s, "a"), f.Subscribe(s, "b")
		f.EnqueueN("a", 30)
		f.EnqueueN("b", 30)
		for range 30 {
			f.Receive(a).Ack()
			f.Receive(b).Ack()
		}
		f.NoError(s.Close())
		f.Len(f.Rows("{status} = 2"), 60)
		f.Zero(pool.Stats().InUse)
	})
}

func TestTrap_ASubscriberThatNeverSubscribedCloses(t *testing.T) {
	forEachEmpty(t, func(t *testing.T, f *fixture) {
		s := f.Subscriber()
		for range 3 {
			f.NoError(s.Close())
		}
		f.Zero(f.DB.Stats().InUse)
	})
}
