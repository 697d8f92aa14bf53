package queue_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/seam"
	"github.com/incursa/watermill-outbox/join"
)

// A transaction of an application has attached a message that is being handled. The Subscriber settles everything else
// meanwhile, and that message as soon as it can.
func TestTrap_AttachInALongTransaction(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		sub := f.Subscriber(func(c *outbox.SubscriberConfig) { c.MaxInFlight = 200 })
		attached, other := f.EnqueueN("attached", 1)[0], f.EnqueueN("other", 100)
		one := f.Receive(f.Subscribe(sub, "attached"))
		others := f.ReceiveN(f.Subscribe(sub, "other"), 100)
		c := f.Joins()
		id := f.Start(c, join.StartParams{ExpectedSteps: 1})

		tx, err := f.DB.BeginTx(f.Context(), nil)
		f.NoError(err)
		defer func() { _ = tx.Rollback() }() // for a failure before the end
		f.NoError(c.Attach(f.Context(), tx, id, attached))
		one.Ack()
		suite.AckAll(others)
		if !f.Config.Dialect.Traits().Procedures { // the one writer of SQLite is that transaction
			f.NoError(tx.Commit())
		}
		f.Settles(other)
		if f.Config.Dialect.Traits().Procedures {
			f.Equal(int(outbox.InProgress), f.Row(attached).Status)
			f.NoError(tx.Commit())
		}
		r := f.Becomes(attached, outbox.Done)
		f.Zero(r.Retries)
		f.Eventually(func() bool { return f.JoinRow(id).Completed == 1 }, suite.Patience, 2*time.Millisecond)
		f.Counted(id, join.Completed, 1, 0, 0)
	})
}

// Settling in a caller's transaction waits for who has the row: it cannot come back to it later.
func TestSettlingInATransactionWaitsForLockedRows(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Needs(suite.SkipLocked)
		c := f.Joins()
		id, held := f.Start(c, join.StartParams{ExpectedSteps: 1}), f.ClaimOne("step")
		attaching, err := f.DB.BeginTx(f.Context(), nil)
		f.NoError(err)
		defer func() { _ = attaching.Rollback() }()
		f.NoError(c.Attach(f.Context(), attaching, id, held.ID))

		tx, err := f.DB.BeginTx(f.Context(), nil)
		f.NoError(err)
		defer func() { _ = tx.Rollback() }()
		done := make(chan error, 1)
		go func() {
			refused, err := f.Outbox.Settle(context.WithoutCancel(f.Context()), tx, suite.Settled(outbox.Ack, held))
			if err == nil && len(refused) > 0 {
				err = outbox.ErrLeaseLost
			}
			done <- err
		}()
		f.NoError(attaching.Commit())
		err, _ = suite.Take(f.T, done, "the end of the settle")
		f.NoError(err)
		f.NoError(tx.Commit())
		f.Counted(id, join.Completed, 1, 0, 0)
	})
}

// A Subscriber that is closed while a row is locked does not wait for it for longer than for a database that is away.
func TestCloseDoesNotWaitForALockedRow(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Needs(suite.SkipLocked)
		sub := f.Subscriber(func(c *outbox.SubscriberConfig) { c.LeaseDuration, c.DrainTimeout = time.Second, suite.Patience })
		id := f.EnqueueN("locked", 1)[0]
		msg := f.Receive(f.Subscribe(sub, "locked"))
		tx, err := f.DB.BeginTx(f.Context(), nil)
		f.NoError(err)
		defer func() { _ = tx.Rollback() }()
		f.ExecOn(tx, "UPDATE {outbox_state} SET {flags} = {flags} WHERE {seq} IN (SELECT {seq} FROM {all} WHERE {message_id} = '%s')", id)
		msg.Ack()
		closed := make(chan error, 1)
		go func() { closed <- sub.Close() }()
		err, _ = suite.Take(f.T, closed, "Close")
		f.NoError(err)
		f.NoError(tx.Rollback())
		f.Equal(int(outbox.InProgress), f.Row(id).Status, "it is delivered again when its lease has expired")
	})
}

// A batch has acks and a retry, and another transaction has locked one of them: that one is reported as busy, with those behind it
// in its stream, and the others are settled, whichever it is.
func TestALockedRowIsReportedWhateverItsOutcome(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Needs(suite.SkipLocked)
		for _, deletes := range []bool{false, true} {
			for _, key := range []string{"", "stream"} {
				for locked := range 3 {
					message := outbox.Message{Topic: "orders"}
					if key != "" {
						message.StreamKey = fmt.Sprint(key, deletes, locked) // of its own, because nothing follows a retry
					}
					f.Enqueue(message, message, message)
					held := f.ClaimUpTo(3, "orders")
					f.Len(held, 3)
					busy := map[outbox.WorkItemID]int64{held[locked].Receipt.Seq: 1}
					for i := locked; key != "" && i < 3; i++ {
						busy[held[i].Receipt.Seq] = 1
					}
					tx, err := f.DB.BeginTx(f.Context(), nil)
					f.NoError(err)
					f.ExecOn(tx, "UPDATE {outbox_state} SET {flags} = {flags} WHERE {seq} = %d", held[locked].Receipt.Seq)
					f.Equal(busy, f.settlePassingOver(deletes, held[:2], held[2:]), "row %d is locked, stream %q", locked, key)
					f.NoError(tx.Rollback())
					for i := range held {
						if busy[held[i].Receipt.Seq] == 1 {
							f.Empty(f.Settle(suite.Settled(outbox.Ack, held[i])...), "it is still held")
						}
					}
					refused := f.Settle(suite.Settled(outbox.Ack, held...)...)
					f.Len(refused, 3, "everything is settled")
				}
			}
		}
	})
}

// settlePassingOver settles as a Subscriber does, and returns the status that is reported for each receipt: 1 is busy.
func (f *fixture) settlePassingOver(deletes bool, acked, retried []outbox.Claimed) map[outbox.WorkItemID]int64 {
	f.T.Helper()
	type group struct {
		Owner   outbox.OwnerToken   `json:"owner"`
		Outcome outbox.Outcome      `json:"outcome"`
		Seqs    []outbox.WorkItemID `json:"seqs"`
	}
	all := []group{{Owner: acked[0].Receipt.Owner, Outcome: outbox.Ack}, {Owner: retried[0].Receipt.Owner, Outcome: outbox.Retry}}
	for i, claimed := range [][]outbox.Claimed{acked, retried} {
		for _, c := range claimed {
			all[i].Seqs = append(all[i].Seqs, c.Receipt.Seq)
		}
	}
	reported := map[outbox.WorkItemID]int64{}
	arg := map[string]any{"worker": "w", "backoff_ms": 60_000, "backoff_max_ms": 60_000, "delete_acked": deletes, "own": true,
		"pass_over": true, "groups": all}
	f.NoError(seam.Outbox(f.Outbox).Run(f.Context(), f.DB.DB, "outbox_settle", arg, func(rows *sql.Rows) error {
		var seq outbox.WorkItemID
		var id string
		var topic sql.NullString
		var status, expected, completed, failed sql.NullInt64
		err := rows.Scan(&seq, &id, &topic, &status, &expected, &completed, &failed)
		reported[seq] = status.Int64
		return err
	}))
	return reported
}

// A message of a stream cannot be settled yet, because a transaction has locked it. Those behind it wait for it: if the process
// died, it would be delivered after them. Other streams do not wait.
func TestTrap_BehindALockedMessageOfAStream(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Needs(suite.SkipLocked)
		sub := f.Subscriber()
		ids, other := f.Ordered("locked", 1, 4), f.Ordered("free", 1, 2)
		locked, free := f.Subscribe(sub, "locked"), f.Subscribe(sub, "free")
		head := f.Receive(locked)
		tx, err := f.DB.BeginTx(f.Context(), nil)
		f.NoError(err)
		defer func() { _ = tx.Rollback() }() // for a failure before the end
		f.ExecOn(tx, "UPDATE {outbox_state} SET {flags} = {flags} WHERE {seq} IN (SELECT {seq} FROM {all} WHERE {message_id} = '%s')", ids[0])
		head.Ack()
		for i := range other { // one is acked before each of these, so that they are settled in several batches
			f.Receive(locked).Ack()
			f.Receive(free).Ack()
			f.Becomes(other[i], outbox.Done)
		}
		f.Receive(locked).Ack()
		for i, id := range ids {
			f.Equal(int(outbox.InProgress), f.Row(id).Status, "message %d of the stream", i)
		}
		f.NoError(tx.Commit())
		f.Settles(ids)
	})
}
