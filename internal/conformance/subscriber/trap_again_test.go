package subscriber_test

import (
	"context"
	"strings"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/faults"
)

// A claim whose connection goes after it has answered, and before it was committed, may be made again on another; what the
// first has answered was rolled back with it, and is no part of the result.
func TestTrap_AClaimThatIsMadeAgainAnswersOnce(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.EnqueueN("a", 3)
		cut := true
		pool := faults.Open(t, f.DB, faults.Hooks{Fault: func(_ context.Context, s faults.Statement) faults.Fault {
			if cut && strings.HasPrefix(s.Text, faults.Commit) {
				cut = false
				return faults.Fault{Kind: faults.BadConn}
			}
			return faults.Fault{}
		}})
		claimed, err := f.NewOutbox(pool).Claim(f.Context(), outbox.ClaimParams{Topics: suite.Quotas("a"), Lease: time.Minute})
		if err != nil { // it is known that nothing was claimed
			f.NotErrorIs(err, outbox.ErrUnknownOutcome)
			f.Empty(claimed)
			claimed = f.Claim("a")
		}
		f.Len(claimed, 3)
		f.Len(f.Rows("{status} = 1"), 3)
	})
}

// A statement that SQLite interrupts takes its transaction with it; that there is none to roll back then says nothing about
// the tables.
func TestTrap_AnInterruptedStatementIsNoMissingTable(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		pool := faults.Open(t, f.DB, faults.Hooks{Answer: func(_ context.Context, s faults.Statement) error {
			if strings.HasPrefix(s.Text, faults.Commit) { // it is over; so is the transaction
				return context.DeadlineExceeded
			}
			return nil
		}})
		claimed := f.ClaimOne("a")
		_, err := f.NewOutbox(pool).Renew(f.Context(), time.Minute, claimed.Receipt)
		f.NotErrorIs(err, outbox.ErrSchema)
	})
}
