package conformance

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/join"
)

// A transaction of an application has attached a message that is being handled. The Subscriber settles everything else
// meanwhile, and that message as soon as it can.
func TestTrap_AttachInALongTransaction(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		sub := f.subscriber(func(c *outbox.SubscriberConfig) { c.MaxInFlight = 200 })
		attached, other := f.enqueueN("attached", 1)[0], f.enqueueN("other", 100)
		one := f.receive(f.subscribe(sub, "attached"))
		others := f.receiveN(f.subscribe(sub, "other"), 100)
		c := f.joins()
		id := f.start(c, join.StartParams{ExpectedSteps: 1})

		tx, err := f.db.BeginTx(f.ctx(), nil)
		f.NoError(err)
		defer func() { _ = tx.Rollback() }() // for a failure before the end
		f.NoError(c.Attach(f.ctx(), tx, id, attached))
		one.Ack()
		ackAll(others)
		if !f.config.Dialect.Traits().Procedures { // the one writer of SQLite is that transaction
			f.NoError(tx.Commit())
		}
		f.settles(other)
		if f.config.Dialect.Traits().Procedures {
			f.Equal(int(outbox.InProgress), f.row(attached).status)
			f.NoError(tx.Commit())
		}
		r := f.becomes(attached, outbox.Done)
		f.Zero(r.retries)
		f.Eventually(func() bool { return f.joinRow(id).completed == 1 }, patience, 2*time.Millisecond)
		f.counted(id, join.Completed, 1, 0, 0)
	})
}

func ackAll(messages []*message.Message) {
	for _, msg := range messages {
		msg.Ack()
	}
}

// settles waits until all are done.
func (f *fixture) settles(ids []outbox.MessageID) {
	f.t.Helper()
	for _, id := range ids {
		f.becomes(id, outbox.Done)
	}
}

// Settling in a caller's transaction waits for who has the row: it cannot come back to it later.
func TestSettlingInATransactionWaitsForLockedRows(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.needs(skipLocked)
		c := f.joins()
		id, held := f.start(c, join.StartParams{ExpectedSteps: 1}), f.claimOne("step")
		attaching, err := f.db.BeginTx(f.ctx(), nil)
		f.NoError(err)
		defer func() { _ = attaching.Rollback() }()
		f.NoError(c.Attach(f.ctx(), attaching, id, held.ID))

		tx, err := f.db.BeginTx(f.ctx(), nil)
		f.NoError(err)
		defer func() { _ = tx.Rollback() }()
		done := make(chan error, 1)
		go func() {
			refused, err := f.outbox.Settle(context.WithoutCancel(f.ctx()), tx, settled(outbox.Ack, held))
			if err == nil && len(refused) > 0 {
				err = outbox.ErrLeaseLost
			}
			done <- err
		}()
		f.NoError(attaching.Commit())
		err, _ = take(f, done, "the end of the settle")
		f.NoError(err)
		f.NoError(tx.Commit())
		f.counted(id, join.Completed, 1, 0, 0)
	})
}

// A Subscriber that is closed while a row is locked does not wait for it for longer than for a database that is away.
func TestCloseDoesNotWaitForALockedRow(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.needs(skipLocked)
		sub := f.subscriber(func(c *outbox.SubscriberConfig) { c.LeaseDuration, c.DrainTimeout = time.Second, patience })
		id := f.enqueueN("locked", 1)[0]
		msg := f.receive(f.subscribe(sub, "locked"))
		tx, err := f.db.BeginTx(f.ctx(), nil)
		f.NoError(err)
		defer func() { _ = tx.Rollback() }()
		f.execOn(tx, "UPDATE {outbox_state} SET {flags} = {flags} WHERE {seq} IN (SELECT {seq} FROM {all} WHERE {message_id} = '%s')", id)
		msg.Ack()
		closed := make(chan error, 1)
		go func() { closed <- sub.Close() }()
		err, _ = take(f, closed, "Close")
		f.NoError(err)
		f.NoError(tx.Rollback())
		f.Equal(int(outbox.InProgress), f.row(id).status, "it is delivered again when its lease has expired")
	})
}
