package queue_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
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
			claimed, err := f.outbox.Claim(b.Context(), outbox.ClaimParams{Topics: suite.Quotas("orders"), Limit: 100})
			require.NoError(b, err)
			require.Len(b, claimed, 100)
			_, err = f.outbox.Settle(b.Context(), f.db.DB, suite.Settled(outbox.Ack, claimed...))
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
			db, o := suite.Install(b, backend)
			bench(b, &benchFixture{db, o})
		})
	}
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
