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

// losesClaim cuts the connection of the first claim once that has been committed, before its answer arrives.
func losesClaim(f *fixture) faults.Hooks {
	var claims, cuts atomic.Int32
	return faults.Hooks{Fault: func(_ context.Context, s faults.Statement) faults.Fault {
		isClaim := isOperation(s, `"give_back":`, "")
		if isClaim {
			claims.Add(1)
		}
		committed := isClaim
		if isSQLite(f) {
			committed = claims.Load() > 0 && strings.HasPrefix(s.Text, faults.Commit)
		}
		if committed && cuts.Add(1) == 1 {
			return faults.Fault{Kind: faults.CutAfter}
		}
		return faults.Fault{}
	}}
}

// A claim whose answer is lost holds messages that no handler gets. The worker gives them back long before their lease is over,
// and no attempt is spent.
func TestTrap_AClaimWhoseAnswerIsLostIsGivenBack(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.EnqueueN("orders", 3)
		f.Enqueue(outbox.Message{Topic: "orders", StreamKey: "a"}, outbox.Message{Topic: "orders", StreamKey: "a"})
		s := f.SubscriberOn(faults.Open(t, f.DB, losesClaim(f)), nil, suite.LeaseOf(time.Hour))
		messages := f.Subscribe(s, "orders")
		for range 5 {
			msg := f.Receive(messages)
			f.Equal(1, f.Delivery(msg).Attempt())
			msg.Ack()
			f.Becomes(f.Delivery(msg).MessageID(), outbox.Done)
		}
		f.Empty(f.Rows("{status} = 1"))
	})
}
