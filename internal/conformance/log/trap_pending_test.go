package log_test

import (
	"testing"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/testdb"
)

// A message that is committed long after thousands of later ones were logged gets its position at once.
func TestTrap_ALateCommitIsStamped(t *testing.T) {
	forEach(t, func(_ *testing.T, f *fixture) {
		f.Needs(suite.ConcurrentWriters)
		late, err := f.DB.BeginTx(f.Context(), nil)
		f.NoError(err)
		_, err = f.LogOutbox().Enqueue(f.Context(), late, outbox.Message{UUID: "late", Topic: "orders"})
		f.NoError(err)
		const rounds, n = 4, 1200
		for range rounds {
			f.LogN("orders", 0, n)
			f.Stamp()
		}
		f.EqualValues(rounds*n, f.LastPosition())
		f.NoError(late.Commit())
		f.Stamp()
		f.EqualValues(rounds*n+1, f.LastPosition())
	})
}

// Where numbers are given again, as after TRUNCATE … RESTART IDENTITY, stamping begins at the beginning again. Only PostgreSQL remembers
// up to where nothing is pending any longer.
func TestTrap_PendingMessagesWhoseNumbersAreGivenAgain(t *testing.T) {
	forEach(t, func(_ *testing.T, f *fixture) {
		if f.DB.Name != testdb.Postgres {
			return
		}
		counter := f.LogTable("counter")
		f.Exec("UPDATE %s SET low = 2000, high = 3000", counter) // so much was logged before
		f.LogN("orders", 0, 3)
		f.Stamp()
		f.Zero(f.LastPosition())
		f.Exec("UPDATE %s SET checked_at = checked_at - interval '2 minutes'", counter)
		f.Stamp()
		f.EqualValues(3, f.LastPosition())
	})
}
