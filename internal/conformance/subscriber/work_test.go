package subscriber_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

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

// A renewing counts the renewals that had a call of their own, and those that went with a claim. It tells them apart like a
// togetherness.
type renewing struct {
	mu           sync.Mutex
	pending      bool // on SQLite: renewed in the transaction that is under way
	alone, along int
}

func (w *renewing) after(_ context.Context, s faults.Statement, _ error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	claims := isOperation(s, `"give_back":`, "")
	switch {
	case strings.HasPrefix(s.Text, "BEGIN"):
		if w.pending {
			w.alone++
		}
		w.pending = false
	case claims && (w.pending || isRenewal(s)):
		w.along++
		w.pending = false
	case isRenewal(s) && strings.HasPrefix(strings.TrimSpace(s.Text), "UPDATE"):
		w.pending = true
	case isRenewal(s) && strings.Contains(s.Text, "enew"): // a procedure
		w.alone++
	}
}

func (w *renewing) seen() (alone, along int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.alone, w.along
}

// While messages come and go, the lease of one whose handler is slow is renewed by the calls that are made for the others.
func TestRenewalsGoWithClaims(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		const lease = 4 * time.Second
		var w renewing
		s := f.SubscriberOn(faults.Open(t, f.DB, faults.Hooks{After: w.after}), nil, func(c *outbox.SubscriberConfig) { c.LeaseDuration = lease })
		id := f.EnqueueN("slow", 1)[0]
		slow := f.Receive(f.Subscribe(s, "slow"))
		messages := f.Subscribe(s, "orders")
		alone, along := 0, 0
		for began := time.Now(); time.Since(began) < 2*lease || along < 4; alone, along = w.seen() {
			f.Less(time.Since(began), suite.Patience, "%d renewals went with claims", along)
			f.EnqueueN("orders", 1)
			f.Receive(messages).Ack()
		}
		f.Greater(along, 2*alone, "renewals with a claim, and alone")
		f.NoError(slow.Context().Err())
		slow.Ack()
		f.Zero(f.Becomes(id, outbox.Done).Retries)
		f.NoError(s.Close())
	})
}
