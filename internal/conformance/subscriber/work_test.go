package subscriber_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/faults"
)

// A togetherness notes whether messages were settled and claimed in one transaction: in one statement, or on SQLite between BEGIN
// and COMMIT, where there is one writer at a time.
type togetherness struct {
	mu              sync.Mutex
	settled, shared bool
}

func (w *togetherness) after(_ context.Context, s faults.Statement, _ error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	claims := isOperation(s, `"give_back":`, "")
	switch {
	case isSettle(s) && claims:
		w.shared = true
	case isSettle(s):
		w.settled = true
	case claims && strings.HasPrefix(strings.TrimSpace(s.Text), "INSERT"):
		w.shared = w.shared || w.settled
	case strings.HasPrefix(s.Text, "BEGIN"):
		w.settled = false
	}
}

func (w *togetherness) seen() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.shared
}

// What is answered while there is more to claim is settled with the next claim.
func TestAClaimTakesAnswersAlong(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		var w togetherness
		s := f.SubscriberOn(faults.Open(t, f.DB, faults.Hooks{After: w.after}), nil, func(c *outbox.SubscriberConfig) { c.MaxInFlight = 1 })
		messages := f.Subscribe(s, "orders")
		sent := 0
		f.Eventually(func() bool {
			f.EnqueueN("orders", 10)
			sent += 10
			for range 10 {
				f.Receive(messages).Ack()
			}
			return w.seen()
		}, suite.Patience, suite.Tick, "each answer was settled by itself")
		f.NoError(s.Close())
		f.Len(f.Rows("{status} = 2"), sent)
	})
}
