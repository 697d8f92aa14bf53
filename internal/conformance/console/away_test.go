package console_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/incursa/watermill-outbox/console"
	"github.com/incursa/watermill-outbox/internal/faults"
	"github.com/incursa/watermill-outbox/internal/testbrowser"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
)

// Somebody opens a page while the database is away, and does not have to open it again when the database is back.
func TestABrowserSeesThatTheDatabaseIsBack(t *testing.T) {
	testoutbox.ForEach(t, func(t *testing.T, o *testoutbox.Outbox) {
		var away atomic.Bool
		pool := faults.Open(t, o.DB, faults.Hooks{Before: func(context.Context, faults.Statement) error {
			if away.Load() {
				return errors.New("the server is being restarted")
			}
			return nil
		}})
		o.Enqueue("orders", 0, 1)
		f := serve(o, "shop", console.Config{Provider: (&fixture{Outbox: o}).provider("shop", pool), Authorize: allow})
		b := testbrowser.Start(t)

		b.Open(f.store)
		b.Reads("#topics", "orders")
		away.Store(true)
		for b.Open(f.store) != 503 { // the last sample is shown until the next one
		}
		b.Reads(".notice", "the server is being restarted")
		away.Store(false)
		b.Reads("#topics", "orders")
		b.Problems() // the browser tells of the answers
	})
}
