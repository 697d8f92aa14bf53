package acceptance_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/incursa/watermill-outbox/internal/skipped"
)

// withConcurrentWriters ends the test on SQLite, where a transaction that writes has no other beside it.
func withConcurrentWriters(t *testing.T, f *fixture) {
	t.Helper()
	if f.one().db.Name == "sqlite" {
		skipped.Add(t.Name(), "concurrent writers", "SQLite has one at a time")
		t.SkipNow()
	}
}

const (
	waitFor = time.Minute
	tick    = 20 * time.Millisecond
)

func joinOf(f *fixture, user string) func(context.Context, *sql.Tx) error {
	return func(ctx context.Context, tx *sql.Tx) error {
		_, err := f.one().service.Join(ctx, tx, f.event, user)
		return err
	}
}
