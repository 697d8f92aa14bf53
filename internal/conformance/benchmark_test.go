package conformance

import (
	"testing"

	"github.com/stretchr/testify/require"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/testdb"
)

func BenchmarkEnqueue100(b *testing.B) {
	eachBackend(b, func(b *testing.B, f *benchFixture) {
		for b.Loop() {
			f.enqueue(b, 100)
		}
	})
}

func BenchmarkClaimAndAck100(b *testing.B) {
	eachBackend(b, func(b *testing.B, f *benchFixture) {
		for b.Loop() {
			b.StopTimer()
			f.enqueue(b, 100)
			b.StartTimer()
			claimed, err := f.outbox.Claim(b.Context(), outbox.ClaimParams{Topics: Quotas("orders"), Limit: 100})
			require.NoError(b, err)
			require.Len(b, claimed, 100)
			_, err = f.outbox.Settle(b.Context(), f.db.DB, Settled(outbox.Ack, claimed...))
			require.NoError(b, err)
		}
	})
}

type benchFixture struct {
	db     *testdb.DB
	outbox *outbox.Outbox
}

func eachBackend(b *testing.B, bench func(b *testing.B, f *benchFixture)) {
	b.Helper()
	for _, backend := range testdb.Backends(b) {
		b.Run(backend.Name, func(b *testing.B) {
			db, o := Install(b, backend)
			bench(b, &benchFixture{db, o})
		})
	}
}

// Install opens a database of its own with an outbox in it.
func Install(t testing.TB, backend testdb.Backend) (*testdb.DB, *outbox.Outbox) {
	t.Helper()
	db, d := backend.Open(t), Dialect(backend.Name)
	require.NoError(t, outbox.Migrate(t.Context(), db.DB, outbox.MigrateConfig{Dialect: d, Schema: db.Schema}))
	o, err := outbox.New(db.DB, outbox.Config{Dialect: d, Schema: db.Schema}, nil)
	require.NoError(t, err)
	return db, o
}

func (f *benchFixture) enqueue(b *testing.B, n int) {
	b.Helper()
	messages := make([]outbox.Message, n)
	for i := range messages {
		messages[i] = outbox.Message{Topic: "orders", Payload: make([]byte, 256)}
	}
	_, err := f.outbox.Enqueue(b.Context(), f.db.DB, messages...)
	require.NoError(b, err)
}
