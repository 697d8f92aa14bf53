package subscriber_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/faults"
)

// A lostClaim cuts the connection of the first claim once that has been committed, before its answer arrives.
type lostClaim struct {
	*fixture
	claims, cuts, looks atomic.Int32
	looking             func() // before the first look at what the claim holds
}

func (c *lostClaim) hooks() faults.Hooks { return faults.Hooks{Fault: c.fault} }

func (c *lostClaim) fault(_ context.Context, s faults.Statement) faults.Fault {
	isClaim := isOperation(s, `"give_back":`, "")
	if isClaim {
		c.claims.Add(1)
	}
	committed := isClaim
	if isSQLite(c.fixture) {
		committed = c.claims.Load() > 0 && strings.HasPrefix(s.Text, faults.Commit)
	}
	if committed && c.cuts.Add(1) == 1 {
		return faults.Fault{Kind: faults.CutAfter}
	}
	if strings.Contains(strings.ToLower(s.Text), "outbox_held") && c.looks.Add(1) == 1 && c.looking != nil {
		c.looking()
	}
	return faults.Fault{}
}

// A claim whose answer is lost holds messages that no handler gets. The worker gives them back long before their lease is over,
// and no attempt is spent.
func TestTrap_AClaimWhoseAnswerIsLostIsGivenBack(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.EnqueueN("orders", 3)
		f.Enqueue(outbox.Message{Topic: "orders", StreamKey: "a"}, outbox.Message{Topic: "orders", StreamKey: "a"})
		c := &lostClaim{fixture: f}
		messages := f.Subscribe(f.SubscriberOn(faults.Open(t, f.DB, c.hooks()), nil, suite.LeaseOf(time.Hour)), "orders")
		for range 5 {
			msg := f.Receive(messages)
			f.Equal(1, f.Delivery(msg).Attempt())
			msg.Ack()
			f.Becomes(f.Delivery(msg).MessageID(), outbox.Done)
		}
		f.Empty(f.Rows("{status} = 1"))
		f.Positive(c.cuts.Load())
	})
}

// What a caller's transaction has locked meanwhile holds up nothing else, and is given back once that has ended.
func TestTrap_AClaimWhoseAnswerIsLostAndAnOpenTransaction(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Needs(suite.ConcurrentWriters)
		ids := f.EnqueueN("orders", 3)
		tx, err := f.DB.BeginTx(f.Context(), nil)
		f.NoError(err)
		c := &lostClaim{fixture: f, looking: func() {
			f.ExecOn(tx, "UPDATE {outbox_state} SET {flags} = {flags} WHERE {seq} = (SELECT o.{seq} FROM {outbox} o WHERE o.{message_id} = '%s')", ids[1])
		}}
		messages := f.Subscribe(f.SubscriberOn(faults.Open(t, f.DB, c.hooks()), nil, suite.LeaseOf(time.Hour)), "orders")
		for _, msg := range f.ReceiveN(messages, 2) {
			f.NotEqual(ids[1], f.Delivery(msg).MessageID())
			msg.Ack()
		}
		f.NoError(tx.Rollback())
		msg := f.Receive(messages)
		f.Equal(ids[1], f.Delivery(msg).MessageID())
		f.Equal(1, f.Delivery(msg).Attempt())
		msg.Ack()
	})
}
