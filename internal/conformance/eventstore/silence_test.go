package eventstore_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/incursa/watermill-outbox/eventstore"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/faults"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
)

// A projection says why it gets nothing, and that this is over when a Sequencer has come.
func TestTrap_AProjectionWithoutASequencer(t *testing.T) {
	forEach(t, func(_ *testing.T, f *fixture) {
		book := suite.NewLogBook()
		store, err := eventstore.New(f.DB.DB, eventstore.Config{Dialect: testoutbox.Dialect(f.DB.Name), Schema: f.DB.Schema}, book)
		f.NoError(err)
		f.createSum("view")
		p, err := store.NewProjection(eventstore.ProjectionConfig{Name: "view", Apply: addTo(f.Table("view")), UnhandledAfter: 20 * time.Millisecond})
		f.NoError(err)
		f.append("s", eventstore.NoStream, events(0, 1)...)
		f.background(p.Run)
		logged := func(level string) func() bool {
			return func() bool { return len(book.At(level, "run an outbox.Sequencer")) > 0 }
		}
		f.Eventually(logged("ERROR"), testoutbox.Patience, time.Millisecond)
		line := book.At("ERROR", "run an outbox.Sequencer")[0]
		f.Equal("view", line.Fields["projection"])
		f.NotEmpty(line.Fields["age"])
		f.sequence()
		f.waitFor("view", "s", 1)
		f.Eventually(logged("INFO"), testoutbox.Patience, time.Millisecond)

		for _, after := range []time.Duration{-2} {
			_, err := store.NewProjection(eventstore.ProjectionConfig{Name: "view", Apply: addTo("x"), UnhandledAfter: after})
			f.ErrorContains(err, "UnhandledAfter")
		}
	})
}

func TestTrap_WaitForSaysWhatItWaitsFor(t *testing.T) {
	forEach(t, func(_ *testing.T, f *fixture) {
		waits := func(group string, version int64, reason string) {
			f.T.Helper()
			ctx, cancel := context.WithCancel(f.ctx())
			defer cancel()
			looks := 0
			pool := faults.Open(f.T, f.DB, faults.Hooks{After: func(context.Context, faults.Statement, error) {
				if looks++; looks == 10 { // the first is over
					cancel()
				}
			}})
			store, err := eventstore.New(pool, eventstore.Config{Dialect: testoutbox.Dialect(f.DB.Name), Schema: f.DB.Schema}, nil)
			f.NoError(err)
			err = store.WaitFor(ctx, group, "s", version)
			f.ErrorIs(err, context.Canceled)
			f.ErrorContains(err, reason)
		}
		f.append("s", eventstore.NoStream, events(0, 2)...)
		waits("view", 1, "the event has no position in the log; run an outbox.Sequencer")
		waits("view", 3, "the stream has no such version")
		f.stamp()
		waits("view", 2, `there is no group "view" of the whole log or of the event's topic`)
		broken := errors.New("broken")
		p := f.projection(eventstore.ProjectionConfig{Name: "view", Apply: func(_ context.Context, _ *sql.Tx, e eventstore.Event) error {
			if e.Version == 2 {
				return broken
			}
			return nil
		}})
		f.ErrorIs(p.Run(f.ctx()), broken)
		waits("view", 2, "the event is at position 2 of the log, and the group at 1")
	})
}
