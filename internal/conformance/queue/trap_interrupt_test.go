package queue_test

import (
	"context"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
)

// A context that ends in the middle of a call ends the caller's transaction, as far as it is not over already: what is done on it
// later is not committed by itself. SQLite rolls the whole of a transaction back when it interrupts a write.
func TestTrap_AnInterruptedCallLeavesNoHalfTransaction(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		many := make([]outbox.Message, 3000)
		for i := range many {
			many[i].Topic = "orders"
		}
		for _, n := range []int{len(many), 500} { // in several batches, and in one statement
			for delay := time.Millisecond; delay < 30*time.Millisecond; delay += 3 * time.Millisecond {
				tx, err := f.DB.BeginTx(f.Context(), nil)
				f.NoError(err)
				_, err = f.Outbox.Enqueue(f.Context(), tx, outbox.Message{Topic: "before"})
				f.NoError(err)
				ctx, cancel := context.WithTimeout(f.Context(), delay)
				_, cut := f.Outbox.Enqueue(ctx, tx, many[:n]...)
				cancel()
				_, after := f.Outbox.Enqueue(f.Context(), tx, outbox.Message{Topic: "after"})
				_ = tx.Rollback() // of a transaction that may have ended
				f.Zero(f.Count(), "cut off: %v; afterwards: %v", cut, after)
			}
		}
	})
}
