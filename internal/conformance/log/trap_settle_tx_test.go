package log_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
)

// effect settles a message of a group in a transaction that also writes something.
func (f *fixture) effect(msg *message.Message, outcome outbox.Outcome) error {
	return outbox.InTx(f.Context(), f.DB.DB, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := f.Outbox.Enqueue(ctx, tx, outbox.Message{Topic: "effect", UUID: msg.UUID}); err != nil {
			return err
		}
		return suite.DeliveryOf(msg).SettleTx(ctx, tx, outcome)
	})
}

// again waits for the next attempt at a message that is already out.
func (f *fixture) again(messages <-chan *message.Message, uuid string) *message.Message {
	f.T.Helper()
	msg := f.Receive(messages)
	f.Equal(uuid, msg.UUID)
	return msg
}

// A handler that hangs is left behind, and its message is handed out again. Whichever of the two settles first, the one left
// behind is refused.
func TestTrap_GroupSettleTxOfAHandlerThatWasLeftBehind(t *testing.T) {
	for name, lateFirst := range map[string]bool{"before the next": true, "after the next": false} {
		t.Run(name, func(t *testing.T) {
			forEach(t, func(t *testing.T, f *fixture) {
				f.LogN("orders", 0, 2)
				f.Stamp()
				s := f.GroupSubscriber(f.DB.DB, "group", nil, func(c *outbox.SubscriberConfig) {
					c.MaxHandlerTime, c.DrainTimeout = 300*time.Millisecond, time.Millisecond
				})
				messages := f.Subscribe(s, "orders")
				hung := f.again(messages, "0")
				suite.Take(f.T, hung.Context().Done(), "the end of the handler's context")
				next := f.again(messages, "0")
				late := func() { f.ErrorIs(f.effect(hung, outbox.Ack), outbox.ErrLeaseLost) }
				if lateFirst {
					late()
				}
				f.NoError(f.effect(next, outbox.Ack))
				if !lateFirst {
					late()
				}
				next.Ack()
				last := f.again(messages, "1")
				late()
				last.Ack()
				hung.Ack()
				f.Equal([]string{"0"}, f.UUIDsOf("effect"))
			})
		})
	}
}

// The same where the reader has lost its lease meanwhile, and has it again.
func TestTrap_GroupSettleTxAfterALostLease(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.LogN("orders", 0, 1)
		f.Stamp()
		s := f.GroupSubscriber(f.DB.DB, "group", nil, func(c *outbox.SubscriberConfig) { c.LeaseDuration = time.Second })
		messages := f.Subscribe(s, "orders")
		first := f.again(messages, "0")
		f.Exec("UPDATE %s SET {owner_token} = '%s', {locked_until} = {past}", f.LogTable("group"), base.NewOwnerToken())
		suite.Take(f.T, first.Context().Done(), "the end of the handler's context")
		second := f.again(messages, "0")
		f.ErrorIs(f.effect(first, outbox.Ack), outbox.ErrLeaseLost)
		f.NoError(f.effect(second, outbox.Ack))
		second.Ack()
		first.Ack()
		f.Equal([]string{"0"}, f.UUIDsOf("effect"))
	})
}

// Two attempts at one message settle it, as when the transaction of the first is still open while the second is handed out: the
// database takes one. The reader learns of it, whoever it was, and goes on.
func TestTrap_GroupSettleTxByTwoAttempts(t *testing.T) {
	for name, requeued := range map[string]bool{"of the log": false, "requeued": true} {
		t.Run(name, func(t *testing.T) {
			forEach(t, func(t *testing.T, f *fixture) {
				messages := f.Subscribe(f.GroupSubscriber(f.DB.DB, "group", nil, maxAttempts(-1)), "orders")
				for i, outcomes := range [][2]outbox.Outcome{
					{outbox.Ack, outbox.Ack}, {outbox.Ack, outbox.Fail}, {outbox.Fail, outbox.Ack}, {outbox.Fail, outbox.Fail}} {
					f.LogN("orders", i, i+1)
					f.Stamp()
					first := f.again(messages, fmt.Sprint(i))
					if requeued {
						f.nack(first, outbox.Permanent(suite.ErrBoom))
						f.requeue("group", 1)
						first = f.again(messages, first.UUID)
					}
					first.Nack()
					second := f.again(messages, first.UUID)
					f.NoError(f.effect(first, outcomes[0]))
					f.ErrorIs(f.effect(second, outcomes[1]), outbox.ErrLeaseLost)
					second.Nack()
					if outcomes[0] == outbox.Ack {
						f.Empty(f.deadLetters("group"))
					} else {
						f.Equal([]string{first.UUID}, f.deadLetters("group"))
						_, err := f.Outbox.DiscardGroupDeadLetters(f.Context(), outbox.GroupDeadLetterParams{Group: "group", All: true})
						f.NoError(err)
					}
				}
				f.LogN("orders", 4, 5)
				f.Stamp()
				f.again(messages, "4").Ack()
				f.Equal(suite.Numbered(0, 4), f.UUIDsOf("effect"))
			})
		})
	}
}

// requeue has dead letters of a group delivered again, as soon as there are so many.
func (f *fixture) requeue(group string, letters int) {
	f.T.Helper()
	f.Eventually(func() bool {
		n, err := f.Outbox.RequeueGroupDeadLetters(f.Context(), outbox.GroupDeadLetterParams{Group: group, All: true})
		f.NoError(err)
		letters -= n
		return letters == 0
	}, suite.Patience, suite.Tick)
}

// A nack after a transaction that was committed, such as one whose answer was lost, changes nothing: the message neither comes
// again nor becomes a dead letter.
func TestTrap_GroupSettleTxIsCommittedAndNacked(t *testing.T) {
	for name, attempts := range map[string]int{"the last attempt": 1, "not the last": 5} {
		t.Run(name, func(t *testing.T) {
			forEach(t, func(t *testing.T, f *fixture) {
				f.LogN("orders", 0, 4)
				f.Stamp()
				messages := f.Subscribe(f.GroupSubscriber(f.DB.DB, "group", nil, maxAttempts(attempts)), "orders")
				for i, reason := range []error{outbox.ErrUnknownOutcome, outbox.Unavailable(suite.ErrBoom), outbox.Permanent(suite.ErrBoom)} {
					msg := f.again(messages, fmt.Sprint(i))
					f.NoError(f.effect(msg, outbox.Ack))
					f.nack(msg, reason)
				}
				f.again(messages, "3").Ack()
				f.Empty(f.deadLetters("group"))
				f.Equal(suite.Numbered(0, 3), f.UUIDsOf("effect"))
			})
		})
	}
}

// The same of a dead letter that was requeued.
func TestTrap_GroupSettleTxOfADeadLetterIsCommittedAndNacked(t *testing.T) {
	for name, attempts := range map[string]int{"the last attempt": 1, "not the last": 5} {
		t.Run(name, func(t *testing.T) {
			forEach(t, func(t *testing.T, f *fixture) {
				messages := f.Subscribe(f.GroupSubscriber(f.DB.DB, "group", nil, maxAttempts(attempts)), "orders")
				f.LogN("orders", 0, 1)
				f.Stamp()
				f.nack(f.again(messages, "0"), outbox.Permanent(suite.ErrBoom))
				f.requeue("group", 1)
				msg := f.again(messages, "0")
				f.NoError(f.effect(msg, outbox.Ack))
				f.nack(msg, outbox.ErrUnknownOutcome)
				f.LogN("orders", 1, 2)
				f.Stamp()
				f.again(messages, "1").Ack()
				f.Empty(f.deadLetters("group"))
			})
		})
	}
}
