package join_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/join"
)

// The lost wake-up: a wait reads that its join is pending, the join ends, and the wait goes to sleep. Each order of events
// is forced here, with two connections; where there is one writer, the second begins while the first is at it. A wait that
// sleeps on is looked at again after five minutes, which is longer than these tests wait.

// forEachLevel runs f with two lanes under each default isolation level of the database.
func (f *fixture) forEachLevel(test func(one, two *suite.Lane)) {
	f.T.Helper()
	for _, level := range f.defaultLevels() {
		f.T.Log("level:", level)
		one, two := f.Lane(level), f.Lane(level)
		test(one, two)
		f.NoError(one.DB.Close())
		f.NoError(two.DB.Close())
	}
}

// lastStep begins a join of two steps, ends one of them, and claims the other.
func (f *fixture) lastStep() (join.ID, outbox.Claimed) {
	f.T.Helper()
	id, _ := f.StartWith(f.Joins(), "step", 2)
	held := f.Claim("step")
	f.Len(held, 2)
	f.Empty(f.Settle(suite.Settled(outbox.Ack, held[0])...))
	return id, held[1]
}

// continuesWith asserts that a wait continues now, once, without having spent an attempt.
func (f *fixture) continuesWith(id join.ID, waiter outbox.MessageID, topic string) {
	f.T.Helper()
	f.Equal(join.Completed, f.Tally(id).Status)
	f.Empty(f.Claim("another")) // a join that has ended in a caller's transaction may leave it to the next claim, of any topic
	if r := f.Row(waiter); r.Status == int(outbox.Ready) {
		f.True(r.IsDue, "the join has ended, and its wait sleeps until %v", r.NextAttempt)
	}
	s := f.Subscriber()
	messages := f.Subscribe(s, join.DefaultWaitTopic)
	served := make(chan struct{})
	go func() {
		defer close(served)
		c := f.Joins()
		for msg := range messages {
			if err := c.HandleWait(msg); err != nil {
				msg.Nack()
				continue
			}
			msg.Ack()
		}
	}()
	f.Zero(f.Becomes(waiter, outbox.Done).Retries)
	f.NoError(s.Close())
	<-served
	f.Equal(1, f.continuations(topic))
	f.Remove("{topic} = '%s'", topic)
}

// deliverWait claims a wait by hand, as a handler gets it.
func (f *fixture) deliverWait() (msg *message.Message, done func()) {
	f.T.Helper()
	f.MakeDue()
	s := f.Subscriber(func(c *outbox.SubscriberConfig) { c.MaxInFlight = 1 }) // and no other claim while it is handled
	msg = f.Receive(f.Subscribe(s, join.DefaultWaitTopic))
	return msg, func() {
		msg.Ack()
		f.NoError(s.Close())
	}
}

func TestTrap_TheLostWakeUp_AJoinEndsWhileItsWaitIsLookedAt(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.forEachLevel(func(looking, ending *suite.Lane) {
			id, last := f.lastStep()
			waiter := f.WaitOn(f.Joins(), nil, id, "next")
			msg, done := f.deliverWait()

			looked := looking.StopAfterLook()
			handled := looking.Run(func() error { return looking.Joins.HandleWait(msg) })
			suite.Take(f.T, looked.Reached, "the look at the join")
			acked := ending.Settle(suite.Settled(outbox.Ack, last)...)
			ending.Blocked(acked) // on the join
			close(looked.Leave)   // the wait has read that the join is pending, and is put off
			looking.Ended(handled)
			ending.Ended(acked)
			done()
			f.continuesWith(id, waiter, "next")
		})
	})
}

func TestTrap_TheLostWakeUp_AWaitIsLookedAtWhileItsJoinEnds(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.forEachLevel(func(looking, ending *suite.Lane) {
			id, last := f.lastStep()
			waiter := f.WaitOn(f.Joins(), nil, id, "next")
			msg, done := f.deliverWait()

			tx, err := ending.DB.BeginTx(f.Context(), nil)
			f.NoError(err)
			f.NoError(ending.SettleOn(tx, suite.Settled(outbox.Ack, last)...))
			handled := looking.Run(func() error { return looking.Joins.HandleWait(msg) })
			looking.Blocked(handled)
			f.NoError(tx.Commit())
			looking.Ended(handled)
			done()
			f.Equal(int(outbox.Done), f.Row(waiter).Status, "it continues at its first look")
			f.continuesWith(id, waiter, "next")
		})
	})
}

func TestTrap_TheLostWakeUp_AJoinEndsWhileAWaitIsEnqueued(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.forEachLevel(func(enqueuing, ending *suite.Lane) {
			id, last := f.lastStep()
			var waiter outbox.MessageID
			looked := enqueuing.StopAfterLook()
			enqueued := enqueuing.Run(func() (err error) {
				waiter, err = enqueuing.Joins.EnqueueWait(f.Context(), nil, join.Wait{Join: id, OnComplete: join.Continuation{Topic: "next"}})
				return err
			})
			suite.Take(f.T, looked.Reached, "the look at the join")
			acked := ending.Settle(suite.Settled(outbox.Ack, last)...)
			ending.Blocked(acked)
			close(looked.Leave)
			enqueuing.Ended(enqueued)
			ending.Ended(acked)
			f.continuesWith(id, waiter, "next")
		})
	})
}

func TestTrap_TheLostWakeUp_AWaitIsEnqueuedWhileItsJoinEnds(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.forEachLevel(func(enqueuing, ending *suite.Lane) {
			id, last := f.lastStep()
			tx, err := ending.DB.BeginTx(f.Context(), nil)
			f.NoError(err)
			f.NoError(ending.SettleOn(tx, suite.Settled(outbox.Ack, last)...))
			var waiter outbox.MessageID
			enqueued := enqueuing.Run(func() (err error) {
				waiter, err = enqueuing.Joins.EnqueueWait(f.Context(), nil, join.Wait{Join: id, OnComplete: join.Continuation{Topic: "next"}})
				return err
			})
			enqueuing.Blocked(enqueued)
			f.NoError(tx.Commit())
			enqueuing.Ended(enqueued)
			f.continuesWith(id, waiter, "next")
		})
	})
}

// The same in transactions of callers, one of which does more before and after: what they lose is a conflict, which they
// are told of, and no wake-up.
func TestTrap_TheLostWakeUp_InTransactionsOfCallers(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.forEachLevel(func(enqueuing, ending *suite.Lane) {
			id, last := f.lastStep()
			began, ended := make(chan struct{}, 100), make(chan struct{})
			acked := ending.Run(func() error {
				return ending.InTx(func(_ context.Context, tx *sql.Tx) error {
					if f.defaultLevels()[0] != "" { // elsewhere reading takes no snapshot, or the only lock
						if err := tx.QueryRowContext(f.Context(), f.SQL("SELECT COUNT(*) FROM {all}")).Scan(new(int)); err != nil {
							return err
						}
						began <- struct{}{}
						<-ended
					}
					return ending.SettleOn(tx, suite.Settled(outbox.Ack, last)...)
				})
			})
			if f.defaultLevels()[0] != "" {
				suite.Take(f.T, began, "the snapshot")
			}
			var waiter outbox.MessageID
			f.NoError(enqueuing.InTx(func(_ context.Context, tx *sql.Tx) (err error) {
				waiter, err = enqueuing.Joins.EnqueueWait(f.Context(), tx, join.Wait{Join: id, OnComplete: join.Continuation{Topic: "next"}})
				return err
			}))
			close(ended)
			ending.Ended(acked)
			f.continuesWith(id, waiter, "next")
		})
	})
}

// Many wait for one join, and one of them is just being looked at when it ends.
func TestTrap_EveryWaitOfAJoinIsWoken(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		looking, ending := f.Lane(""), f.Lane("")
		id, last := f.lastStep()
		var waiters []outbox.MessageID
		for range 20 {
			waiters = append(waiters, f.WaitOn(f.Joins(), nil, id, "next"))
		}
		msg, done := f.deliverWait() // one of them is with a handler, the others are due
		f.Exec("UPDATE {outbox_state} SET {next_attempt_at} = {future} WHERE {status} = 0")
		looked := looking.StopAfterLook()
		handled := looking.Run(func() error { return looking.Joins.HandleWait(msg) })
		suite.Take(f.T, looked.Reached, "the look at the join")
		acked := ending.Settle(suite.Settled(outbox.Ack, last)...)
		ending.Blocked(acked)
		close(looked.Leave)
		looking.Ended(handled)
		ending.Ended(acked)
		done()

		s := f.Subscriber()
		c := f.Joins()
		messages := f.Subscribe(s, join.DefaultWaitTopic)
		for range waiters {
			msg := f.Receive(messages)
			f.NoError(c.HandleWait(msg))
			msg.Ack()
		}
		for _, waiter := range waiters {
			f.Zero(f.Becomes(waiter, outbox.Done).Retries)
		}
		f.NoError(s.Close())
		f.Equal(len(waiters), f.continuations("next"))
	})
}

// More wait for one join than a statement of the engine writes.
func TestTrap_MoreThanABatchOfWaitsAreWoken(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		const waits = 1100
		f.EnqueueN("waits", waits)
		id, last := f.lastStep()
		f.Exec("INSERT INTO {wait} ({join_id}, {step}) SELECT '%s', {message_id} FROM {outbox} WHERE {topic} = 'waits'", id)
		f.Exec("UPDATE {outbox_state} SET {next_attempt_at} = {future} WHERE {status} = 0")
		f.Empty(f.Claim("waits"))
		f.Empty(f.Settle(suite.Settled(outbox.Ack, last)...))
		for left := waits; left > 0; left -= 1000 {
			woken := f.ClaimWith(outbox.ClaimParams{Topics: []outbox.TopicQuota{{Topic: "waits"}}, Limit: 1000, Lease: time.Minute})
			f.Len(woken, min(left, 1000))
		}
	})
}
