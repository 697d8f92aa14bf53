package streams_test

import (
	"testing"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/testdb"
)

// Where numbers of arrivals are given again, as after TRUNCATE … RESTART IDENTITY, messages are routed from the beginning again.
// Only PostgreSQL remembers up to where nothing arrives any longer.
func TestTrap_ArrivalsWhoseNumbersAreGivenAgain(t *testing.T) {
	forEach(t, func(_ *testing.T, f *fixture) {
		if f.DB.Name != testdb.Postgres {
			return
		}
		f.Ordered("orders", 1, 3)
		f.Exec("UPDATE %s SET low = 2000, high = 3000", f.Object("outbox_router")) // so much was routed before
		f.Enqueue(outbox.Message{Topic: "orders", UUID: "first of a stream", StreamKey: "another"})
		f.Empty(f.Claim("orders"))
		_, err := f.Outbox.ReapExpired(f.Context())
		f.NoError(err)
		f.Len(f.Claim("orders"), 4)
	})
}
