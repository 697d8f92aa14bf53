package conformance

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/faults"
)

// The traps of workers: leases, closing, starvation, outages.

// shortLease leaves a busy machine time to renew: a quarter of it passes before that, and three quarters after.
const shortLease = 5 * time.Second

func leaseOf(lease time.Duration) func(*outbox.SubscriberConfig) {
	return func(c *outbox.SubscriberConfig) { c.LeaseDuration = lease }
}

func TestTrap_ASlowHandlerKeepsItsLease(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		const lease = shortLease
		id := f.enqueueN("orders", 1)[0]
		s := f.subscriber(leaseOf(lease))
		msg := f.receive(f.subscribe(s, "orders"))
		first := f.row(id)
		competing := f.subscriber(leaseOf(lease))
		other := f.subscribe(competing, "orders")
		f.Eventually(func() bool { // longer than the lease that it got
			f.Empty(other, "another has it too")
			return f.now().After(first.lockedUntil)
		}, lease+patience, 5*time.Millisecond)
		f.Equal(first.owner, f.row(id).owner)
		f.NoError(msg.Context().Err())
		msg.Ack()
		f.Zero(f.becomes(id, outbox.Done).retries)
	})
}

func TestTrap_AHandlerThatLostItsLeaseChangesNothing(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		const lease = shortLease
		ids := f.enqueueN("orders", 2)
		s := f.subscriber(leaseOf(lease))
		messages := f.subscribe(s, "orders")
		received := f.receiveN(messages, 2)
		// Another worker has them, as after a pause of the whole process.
		thief := base.NewOwnerToken()
		f.exec("UPDATE {outbox_state} SET {owner_token} = '%s'", thief)
		f.exec("UPDATE {outbox_lease} SET {owner_token} = '%s', {locked_until} = {future}", thief)
		for _, msg := range received {
			take(f, msg.Context().Done(), "the end of the context of a message whose lease is lost")
		}
		received[0].Ack()
		received[1].Nack()
		f.NoError(s.Close())
		for _, id := range ids {
			r := f.row(id)
			f.Equal(int(outbox.InProgress), r.status)
			f.Equal(thief, r.owner)
			f.Zero(r.retries)
		}
	})
}

func TestTrap_CloseInTheMiddleOfABatch(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.enqueueN("orders", 30)
		s := f.subscriber(func(c *outbox.SubscriberConfig) {
			c.MaxInFlight, c.LeaseDuration, c.DrainTimeout = 20, time.Hour, patience
		})
		messages := f.subscribe(s, "orders")
		received := f.receiveN(messages, 3)
		f.Eventually(func() bool { return len(f.rows("{status} = 1")) == 20 }, patience, 2*time.Millisecond)
		closed := make(chan error, 3)
		for range 3 { // from many goroutines at once
			go func() { closed <- s.Close() }()
		}
		// What was never handed out is released at once, while handlers are still at work.
		f.Eventually(func() bool { return len(f.rows("{status} = 1")) == 3 }, patience, 2*time.Millisecond)
		f.Len(f.rows("{status} = 0 AND {retry_count} = 0"), 27, "releasing spends no attempt")
		f.Len(f.claim("orders"), 27, "and they are due")
		_, open := take(f, messages, "the end of the channel")
		f.False(open)
		for _, msg := range received {
			f.NoError(msg.Context().Err(), "a handler in flight may finish")
		}
		f.Empty(closed)
		received[0].Ack()
		received[1].Nack()
		received[2].Ack()
		for range 3 {
			err, _ := take(f, closed, "Close")
			f.NoError(err)
		}
		f.Len(f.rows("{status} = 2"), 2, "what handlers finished is settled")
		f.Len(f.rows("{status} = 0 AND {retry_count} = 1"), 1)
		f.NoError(s.Close(), "again")
	})
}

func TestTrap_CloseIsBoundedByDrainTimeout(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		ids := f.enqueueN("orders", 2)
		s := f.subscriber(func(c *outbox.SubscriberConfig) { c.DrainTimeout = 50 * time.Millisecond })
		received := f.receiveN(f.subscribe(s, "orders"), 2)
		f.NoError(s.Close())
		for i, msg := range received {
			f.Error(msg.Context().Err(), "the context of a handler that did not finish has ended")
			r := f.row(ids[i])
			f.Equal(int(outbox.Ready), r.status)
			f.Zero(r.retries, "it was not its fault")
		}
		received[0].Ack() // too late
		f.Len(f.claim("orders"), 2)
	})
}

func TestTrap_AContextOfOneSubscriptionEndsThatOneOnly(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		s := f.subscriber(func(c *outbox.SubscriberConfig) { c.LeaseDuration = time.Hour })
		ctx, cancel := context.WithCancel(context.WithoutCancel(f.ctx()))
		a, err := s.Subscribe(ctx, "a")
		f.NoError(err)
		b := f.subscribe(s, "b")
		f.enqueueN("a", 5)
		held := f.receive(a)
		cancel()
		for range a { // one may have been on its way
		}
		f.NoError(held.Context().Err(), "the handler may finish")
		f.enqueueN("b", 1)
		f.receive(b).Ack()
		held.Ack()
		f.Eventually(func() bool {
			return len(f.rows("{topic} = 'a' AND {status} = 0 AND {retry_count} = 0")) >= 3 && len(f.rows("{topic} = 'a' AND {status} = 1")) == 0
		},
			patience, 2*time.Millisecond, "the others are released")
		again := f.subscribe(s, "a")
		f.receive(again).Ack()
	})
}

func TestTrap_ANackHoldsUpNoOther(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.enqueueN("orders", 20)
		s := f.subscriber(func(c *outbox.SubscriberConfig) {
			c.MaxInFlight = 2
			c.Backoff = func(int) time.Duration { return time.Hour }
		})
		messages := f.subscribe(s, "orders")
		f.receive(messages).Nack()
		for range 19 {
			f.receive(messages).Ack()
		}
		f.Eventually(func() bool { return len(f.rows("{status} = 2")) == 19 }, patience, 2*time.Millisecond)
		f.Len(f.rows("{status} = 0 AND {retry_count} = 1"), 1)
	})
}

func TestTrap_AStuckTopicStarvesNoOther(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		s := f.subscriber(func(c *outbox.SubscriberConfig) { c.MaxInFlight = 5 })
		stuck, fine := f.subscribe(s, "stuck"), f.subscribe(s, "zfine")
		f.enqueueN("stuck", 50)
		f.receiveN(stuck, 4) // and never answers
		f.enqueueN("zfine", 20)
		for range 20 {
			f.receive(fine).Ack()
		}
	})
}

func TestTrap_TheHandlersOwnTransactionSettles(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		s := f.subscriber()
		messages := f.subscribe(s, "orders")
		id := f.enqueueN("orders", 1)[0]

		// Rolled back: the message is delivered again, and what the handler wrote is gone.
		msg := f.receive(messages)
		err := outbox.InTx(f.ctx(), f.db.DB, func(ctx context.Context, tx *sql.Tx) error {
			_, err := f.outbox.Enqueue(ctx, tx, outbox.Message{Topic: "produced"})
			return errors.Join(err, f.delivery(msg).SettleTx(ctx, tx, outbox.Ack), errBoom)
		})
		f.ErrorIs(err, errBoom)
		msg.Nack()

		msg = f.receive(messages)
		f.NoError(outbox.InTx(f.ctx(), f.db.DB, func(ctx context.Context, tx *sql.Tx) error {
			_, err := f.outbox.Enqueue(ctx, tx, outbox.Message{Topic: "produced"})
			return errors.Join(err, f.delivery(msg).SettleTx(ctx, tx, outbox.Ack))
		}))
		f.Equal(int(outbox.Done), f.row(id).status, "from the commit on, without any ack")
		msg.Ack()
		f.Len(f.claim("produced"), 1)

		// A lease that is lost is told, so that the handler rolls back.
		f.enqueueN("orders", 1)
		msg = f.receive(messages)
		f.steal("{status} = 1")
		err = outbox.InTx(f.ctx(), f.db.DB, func(ctx context.Context, tx *sql.Tx) error { return f.delivery(msg).SettleTx(ctx, tx, outbox.Ack) })
		f.ErrorIs(err, outbox.ErrLeaseLost)
		f.ErrorIs(f.delivery(msg).SettleTx(f.ctx(), nil, outbox.Ack), base.ErrNilDB)
		msg.Nack()
	})
}

func TestTrap_ALongTransactionOfAHandlerHoldsUpNoRenewal(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.needs(concurrentWriters, updatesSkipLocked)
		const lease = shortLease
		f.enqueueN("orders", 2)
		s := f.subscriber(leaseOf(lease))
		received := f.receiveN(f.subscribe(s, "orders"), 2)
		tx, err := f.db.BeginTx(f.ctx(), nil)
		f.NoError(err)
		defer func() { _ = tx.Rollback() }()                                 // for a failure before the commit
		f.NoError(f.delivery(received[0]).SettleTx(f.ctx(), tx, outbox.Ack)) // its row stays locked
		other := f.delivery(received[1]).MessageID()
		first := f.row(other).lockedUntil
		f.Eventually(func() bool { return f.row(other).lockedUntil.Sub(first) > 2*lease }, 10*lease+patience, 5*time.Millisecond)
		f.NoError(received[1].Context().Err())
		f.NoError(tx.Commit())
		received[0].Ack()
		received[1].Ack()
		f.becomes(other, outbox.Done)
		f.Equal(int(outbox.Done), f.row(f.delivery(received[0]).MessageID()).status)
		f.Zero(f.row(f.delivery(received[0]).MessageID()).retries)
	})
}

func TestTrap_AnOutageOfTheDatabaseSpendsNoAttempt(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		var down atomic.Bool
		failed := make(chan struct{}, 1)
		pool := faults.Open(t, f.db, faults.Hooks{Before: func(_ context.Context, s faults.Statement) error {
			if down.Load() && !strings.Contains(strings.ToUpper(s.Text), "ROLLBACK") {
				select {
				case failed <- struct{}{}:
				default:
				}
				return errors.New("connection refused")
			}
			return nil
		}})
		book := newLogBook()
		s := f.subscriberOn(pool, book, func(c *outbox.SubscriberConfig) { c.LeaseDuration = time.Hour })
		messages := f.subscribe(s, "orders")
		ids := f.enqueueN("orders", 2)
		received := f.receiveN(messages, 2)
		down.Store(true)
		received[0].Ack()
		received[1].Ack()
		take(f, failed, "a failing statement")
		f.await(book, "ERROR", "trying again")
		down.Store(false)
		for _, id := range ids {
			f.Zero(f.becomes(id, outbox.Done).retries)
		}
		f.enqueueN("orders", 1)
		f.receive(messages).Ack()
	})
}

// A second live subscription to a topic is refused, by the same Subscriber or by another of the process, unless it says that
// it means to compete.
func TestTrap_ASecondSubscriptionIsRefused(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		alone := func(c *outbox.SubscriberConfig) { c.AllowCompeting = false }
		s := f.subscriber(alone)
		ctx, cancel := context.WithCancel(context.WithoutCancel(f.ctx()))
		first, err := s.Subscribe(ctx, "orders")
		f.NoError(err)
		f.subscribe(s, "others")
		for _, second := range []*outbox.Subscriber{s, f.subscriber(alone)} {
			_, err := second.Subscribe(f.ctx(), "orders")
			f.ErrorIs(err, outbox.ErrCompeting)
			f.ErrorContains(err, "\"orders\"")
		}
		f.subscribe(f.subscriber(), "orders") // which allows it
		f.enqueueN("orders", 1)
		cancel()
		for range first {
		}
		f.subscribe(f.subscriberOn(f.db.Reopen(t).DB, nil, alone), "orders") // another pool may be another database
	})
}

// One whose context has ended, or whose Subscriber closes, is not in the way.
func TestTrap_ASubscriptionThatHasEndedDoesNotCompete(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		alone := func(c *outbox.SubscriberConfig) { c.AllowCompeting = false }
		s := f.subscriber(alone)
		ctx, cancel := context.WithCancel(context.WithoutCancel(f.ctx()))
		_, err := s.Subscribe(ctx, "orders")
		f.NoError(err)
		cancel()
		f.subscribe(s, "orders")
		f.NoError(s.Close())
		f.subscribe(f.subscriber(alone), "orders")
	})
}

// Two subscriptions to one topic compete: each message comes to one of them, and the log says so.
func TestTrap_ASecondSubscriptionCompetes(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		book := newLogBook()
		s := f.subscriberOn(f.db.DB, book)
		one, two := f.subscribe(s, "orders"), f.subscribe(s, "orders")
		f.Len(book.at("INFO", "competes"), 1)
		f.Equal("orders", book.at("INFO", "competes")[0].fields["topic"])
		const n = 40
		f.enqueueN("orders", n)
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
		take(f, all, "all messages")
		f.NoError(s.Close())
		for uuid, times := range seen {
			f.Equal(1, times, uuid)
		}
	})
}

func TestTrap_ASubscriberWithOneConnection(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		pool := f.db.Reopen(t)
		pool.SetMaxOpenConns(1)
		s := f.subscriberOn(pool.DB, nil, func(c *outbox.SubscriberConfig) { c.LeaseDuration = 10 * time.Second })
		a, b := f.subscribe(s, "a"), f.subscribe(s, "b")
		f.enqueueN("a", 30)
		f.enqueueN("b", 30)
		for range 30 {
			f.receive(a).Ack()
			f.receive(b).Ack()
		}
		f.NoError(s.Close())
		f.Len(f.rows("{status} = 2"), 60)
		f.Zero(pool.Stats().InUse)
	})
}

func TestTrap_ASubscriberThatNeverSubscribedCloses(t *testing.T) {
	forEachEmpty(t, func(t *testing.T, f *fixture) {
		s := f.subscriber()
		for range 3 {
			f.NoError(s.Close())
		}
		f.Zero(f.db.Stats().InUse)
	})
}

func TestDeleteOnAckKeepsWhatHasFailed(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		deleting := f.subscriber(func(c *outbox.SubscriberConfig) { c.DeleteOnAck = true })
		messages := f.subscribe(deleting, "orders")
		f.enqueueN("orders", 5)
		for i := range 5 {
			msg := f.receive(messages)
			if i == 0 {
				f.delivery(msg).SetErr(outbox.Permanent(fmt.Errorf("kept")))
				msg.Nack()
				continue
			}
			msg.Ack()
		}
		f.Eventually(func() bool { return f.count() == 1 }, patience, 2*time.Millisecond)
		f.Len(f.rows("{status} = 3"), 1)
	})
}

// The subscriber purges what has been done for longer than its retention, and nothing else.
func TestRetentionPurgesWhatIsDone(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		left := f.retained()
		f.subscribe(f.subscriber(func(c *outbox.SubscriberConfig) { c.Janitor.Done = 300 * time.Millisecond }), "orders")
		f.Eventually(func() bool { return f.count() == len(left) }, patience, 20*time.Millisecond)
		f.ElementsMatch(left, f.uuids())
	})
}

// retained has one message that a short Retention does not keep, and returns those that it does.
func (f *fixture) retained() (left []string) {
	f.t.Helper()
	for _, state := range []string{"done", "failed", "just done", "ready"} {
		f.enqueue(outbox.Message{Topic: state, UUID: state})
	}
	f.settle(settled(outbox.Ack, f.claim("done", "just done")...)...)
	f.settle(settled(outbox.Fail, f.claim("failed")...)...)
	f.exec("UPDATE {outbox} SET {created_at} = {past}")
	f.exec("UPDATE {outbox_state} SET {processed_at} = {past} WHERE {status} >= 2")
	f.exec("UPDATE {outbox_state} SET {processed_at} = {future} WHERE {seq} IN (SELECT {seq} FROM {all} WHERE {uuid} = 'just done')")
	return []string{"failed", "just done", "ready"}
}

func (f *fixture) uuids() []string {
	f.t.Helper()
	uuids, err := f.strings(f.db, f.sql("SELECT {uuid} FROM {all}"))
	f.NoError(err)
	return uuids
}
