package conformance

import (
	"context"
	"database/sql"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/join"
)

// The lost wake-up: a wait reads that its join is pending, the join ends, and the wait goes to sleep. Each order of events
// is forced here, with two connections; where there is one writer, the second begins while the first is at it. A wait that
// sleeps on is looked at again after five minutes, which is longer than these tests wait.

// forEachLevel runs f with two lanes under each default isolation level of the database.
func (f *fixture) forEachLevel(test func(one, two *lane)) {
	f.t.Helper()
	for _, level := range f.defaultLevels() {
		f.t.Log("level:", level)
		one, two := f.lane(level), f.lane(level)
		test(one, two)
		f.NoError(one.db.Close())
		f.NoError(two.db.Close())
	}
}

// lastStep begins a join of two steps, ends one of them, and claims the other.
func (f *fixture) lastStep() (join.ID, outbox.Claimed) {
	f.t.Helper()
	id, _ := f.startWith(f.joins(), "step", 2)
	held := f.claim("step")
	f.Len(held, 2)
	f.Empty(f.settle(settled(outbox.Ack, held[0])...))
	return id, held[1]
}

// continuesWith asserts that a wait continues now, once, without having spent an attempt.
func (f *fixture) continuesWith(id join.ID, waiter outbox.MessageID, topic string) {
	f.t.Helper()
	f.Equal(join.Completed, f.tally(id).status)
	f.Empty(f.claim("another")) // a join that has ended in a caller's transaction may leave it to the next claim, of any topic
	if r := f.row(waiter); r.status == int(outbox.Ready) {
		f.True(r.isDue, "the join has ended, and its wait sleeps until %v", r.nextAttempt)
	}
	s := f.subscriber()
	messages := f.subscribe(s, join.DefaultWaitTopic)
	served := make(chan struct{})
	go func() {
		defer close(served)
		c := f.joins()
		for msg := range messages {
			if err := c.HandleWait(msg); err != nil {
				msg.Nack()
				continue
			}
			msg.Ack()
		}
	}()
	f.Zero(f.becomes(waiter, outbox.Done).retries)
	f.NoError(s.Close())
	<-served
	f.Equal(1, f.continuations(topic))
	f.remove("{topic} = '%s'", topic)
}

// deliverWait claims a wait by hand, as a handler gets it.
func (f *fixture) deliverWait() (msg *message.Message, done func()) {
	f.t.Helper()
	f.makeDue()
	s := f.subscriber(func(c *outbox.SubscriberConfig) { c.MaxInFlight = 1 }) // and no other claim while it is handled
	msg = f.receive(f.subscribe(s, join.DefaultWaitTopic))
	return msg, func() {
		msg.Ack()
		f.NoError(s.Close())
	}
}

func TestTrap_TheLostWakeUp_AJoinEndsWhileItsWaitIsLookedAt(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.forEachLevel(func(looking, ending *lane) {
			id, last := f.lastStep()
			waiter := f.waitOn(f.joins(), nil, id, "next")
			msg, done := f.deliverWait()

			looked := looking.stopAfterLook()
			handled := looking.run(func() error { return looking.joins.HandleWait(msg) })
			take(f, looked.reached, "the look at the join")
			acked := ending.settle(settled(outbox.Ack, last)...)
			ending.blocked(acked) // on the join
			close(looked.leave)   // the wait has read that the join is pending, and is put off
			looking.ended(handled)
			ending.ended(acked)
			done()
			f.continuesWith(id, waiter, "next")
		})
	})
}

func TestTrap_TheLostWakeUp_AWaitIsLookedAtWhileItsJoinEnds(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.forEachLevel(func(looking, ending *lane) {
			id, last := f.lastStep()
			waiter := f.waitOn(f.joins(), nil, id, "next")
			msg, done := f.deliverWait()

			tx, err := ending.db.BeginTx(f.ctx(), nil)
			f.NoError(err)
			f.NoError(ending.settleOn(tx, settled(outbox.Ack, last)...))
			handled := looking.run(func() error { return looking.joins.HandleWait(msg) })
			looking.blocked(handled)
			f.NoError(tx.Commit())
			looking.ended(handled)
			done()
			f.Equal(int(outbox.Done), f.row(waiter).status, "it continues at its first look")
			f.continuesWith(id, waiter, "next")
		})
	})
}

func TestTrap_TheLostWakeUp_AJoinEndsWhileAWaitIsEnqueued(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.forEachLevel(func(enqueuing, ending *lane) {
			id, last := f.lastStep()
			var waiter outbox.MessageID
			looked := enqueuing.stopAfterLook()
			enqueued := enqueuing.run(func() (err error) {
				waiter, err = enqueuing.joins.EnqueueWait(f.ctx(), nil, join.Wait{Join: id, OnComplete: join.Continuation{Topic: "next"}})
				return err
			})
			take(f, looked.reached, "the look at the join")
			acked := ending.settle(settled(outbox.Ack, last)...)
			ending.blocked(acked)
			close(looked.leave)
			enqueuing.ended(enqueued)
			ending.ended(acked)
			f.continuesWith(id, waiter, "next")
		})
	})
}

func TestTrap_TheLostWakeUp_AWaitIsEnqueuedWhileItsJoinEnds(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.forEachLevel(func(enqueuing, ending *lane) {
			id, last := f.lastStep()
			tx, err := ending.db.BeginTx(f.ctx(), nil)
			f.NoError(err)
			f.NoError(ending.settleOn(tx, settled(outbox.Ack, last)...))
			var waiter outbox.MessageID
			enqueued := enqueuing.run(func() (err error) {
				waiter, err = enqueuing.joins.EnqueueWait(f.ctx(), nil, join.Wait{Join: id, OnComplete: join.Continuation{Topic: "next"}})
				return err
			})
			enqueuing.blocked(enqueued)
			f.NoError(tx.Commit())
			enqueuing.ended(enqueued)
			f.continuesWith(id, waiter, "next")
		})
	})
}

// The same in transactions of callers, one of which does more before and after: what they lose is a conflict, which they
// are told of, and no wake-up.
func TestTrap_TheLostWakeUp_InTransactionsOfCallers(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.forEachLevel(func(enqueuing, ending *lane) {
			id, last := f.lastStep()
			began, ended := make(chan struct{}, 100), make(chan struct{})
			acked := ending.run(func() error {
				return ending.inTx(func(_ context.Context, tx *sql.Tx) error {
					if f.defaultLevels()[0] != "" { // elsewhere reading takes no snapshot, or the only lock
						if err := tx.QueryRowContext(f.ctx(), f.sql("SELECT COUNT(*) FROM {all}")).Scan(new(int)); err != nil {
							return err
						}
						began <- struct{}{}
						<-ended
					}
					return ending.settleOn(tx, settled(outbox.Ack, last)...)
				})
			})
			if f.defaultLevels()[0] != "" {
				take(f, began, "the snapshot")
			}
			var waiter outbox.MessageID
			f.NoError(enqueuing.inTx(func(_ context.Context, tx *sql.Tx) (err error) {
				waiter, err = enqueuing.joins.EnqueueWait(f.ctx(), tx, join.Wait{Join: id, OnComplete: join.Continuation{Topic: "next"}})
				return err
			}))
			close(ended)
			ending.ended(acked)
			f.continuesWith(id, waiter, "next")
		})
	})
}

// Many wait for one join, and one of them is just being looked at when it ends.
func TestTrap_EveryWaitOfAJoinIsWoken(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		looking, ending := f.lane(""), f.lane("")
		id, last := f.lastStep()
		var waiters []outbox.MessageID
		for range 20 {
			waiters = append(waiters, f.waitOn(f.joins(), nil, id, "next"))
		}
		msg, done := f.deliverWait() // one of them is with a handler, the others are due
		f.exec("UPDATE {outbox_state} SET {next_attempt_at} = {future} WHERE {status} = 0")
		looked := looking.stopAfterLook()
		handled := looking.run(func() error { return looking.joins.HandleWait(msg) })
		take(f, looked.reached, "the look at the join")
		acked := ending.settle(settled(outbox.Ack, last)...)
		ending.blocked(acked)
		close(looked.leave)
		looking.ended(handled)
		ending.ended(acked)
		done()

		s := f.subscriber()
		c := f.joins()
		messages := f.subscribe(s, join.DefaultWaitTopic)
		for range waiters {
			msg := f.receive(messages)
			f.NoError(c.HandleWait(msg))
			msg.Ack()
		}
		for _, waiter := range waiters {
			f.Zero(f.becomes(waiter, outbox.Done).retries)
		}
		f.NoError(s.Close())
		f.Equal(len(waiters), f.continuations("next"))
	})
}
