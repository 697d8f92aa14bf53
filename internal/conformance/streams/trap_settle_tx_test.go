package streams_test

import (
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
)

// inTx settles a message in a transaction of its own, which then ends.
func (f *fixture) inTx(msg *message.Message, outcome outbox.Outcome, commits bool) {
	f.T.Helper()
	tx, err := f.DB.BeginTx(f.Context(), nil)
	f.NoError(err)
	defer func() { _ = tx.Rollback() }()
	f.NoError(f.Delivery(msg).SettleTx(f.Context(), tx, outcome))
	if commits {
		f.NoError(tx.Commit())
	} else {
		f.NoError(tx.Rollback())
	}
}

// SettleTx comes last in a handler's transaction, whose commit then fails: what is behind the message waits for it, and hooks
// hear of a retry.
func TestTrap_StreamWhoseSettleTxIsRolledBack(t *testing.T) {
	for _, outcome := range []outbox.Outcome{outbox.Ack, outbox.Fail} {
		t.Run(outcome.String(), func(t *testing.T) {
			forEach(t, func(t *testing.T, f *fixture) {
				handled := make(chan outbox.HandledEvent, 10)
				ids := f.Ordered("orders", 1, 3)
				messages := f.Subscribe(f.Subscriber(func(c *outbox.SubscriberConfig) {
					c.OnStreamFailure = outbox.DeadLetter
					c.Hooks.OnHandled = func(e outbox.HandledEvent) { handled <- e }
				}), "orders")
				first := f.Receive(messages)
				f.inTx(first, outcome, false)
				f.Delivery(first).SetErr(errors.New("commit: connection reset"))
				first.Nack()
				for i, attempt := range []int{2, 1, 1} {
					msg := f.Receive(messages)
					f.Equal(ids[i], f.Delivery(msg).MessageID())
					f.Equal(attempt, f.Delivery(msg).Attempt())
					msg.Ack()
				}
				f.Settles(ids)
				event, _ := suite.Take(f.T, handled, "the event of the first attempt")
				f.Equal(outbox.Retry, event.Outcome)
				f.ErrorContains(event.Err, "connection reset")
			})
		})
	}
}

// The last attempt is rolled back, too. With DeadLetter the stream goes on behind it, and its failure is written before anything
// that comes later ends.
func TestTrap_StreamWhoseLastSettleTxIsRolledBack(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		ids := f.Ordered("orders", 1, 2)
		messages := f.Subscribe(f.Subscriber(func(c *outbox.SubscriberConfig) {
			c.OnStreamFailure, c.MaxAttempts = outbox.DeadLetter, 1
		}), "orders")
		first := f.Receive(messages)
		f.inTx(first, outbox.Ack, false)
		first.Nack()
		second := f.Receive(messages)
		f.inTx(second, outbox.Ack, true)
		f.Equal(int(outbox.Failed), f.Row(ids[0]).Status, "when the second is done")
		second.Ack()
		f.Becomes(ids[1], outbox.Done)
	})
}

// A nack after a transaction that was committed, such as one whose answer was lost, changes nothing: the message is over, and its
// stream goes on.
func TestTrap_StreamWhoseSettleTxIsCommittedAndNacked(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		for _, deletes := range []bool{false, true} {
			for _, attempts := range []int{1, 10} {
				ids := f.Ordered("orders", 1, 3)
				s := f.Subscriber(func(c *outbox.SubscriberConfig) {
					c.DeleteOnAck, c.MaxAttempts, c.OnStreamFailure, c.LeaseDuration = deletes, attempts, outbox.DeadLetter, time.Hour
				})
				messages := f.Subscribe(s, "orders")
				for i := range ids {
					msg := f.Receive(messages)
					f.Equal(ids[i], f.Delivery(msg).MessageID())
					f.Equal(1, f.Delivery(msg).Attempt())
					f.inTx(msg, outbox.Ack, true)
					msg.Nack()
				}
				f.Eventually(func() bool { return f.Number("SELECT COUNT(*) FROM {outbox_stream}") == 0 }, suite.Patience, suite.Tick, "the stream is free and empty")
				f.NoError(s.Close())
				f.Zero(f.Number("SELECT COUNT(*) FROM {outbox_state} WHERE {status} NOT IN (%d)", outbox.Done))
			}
		}
	})
}
