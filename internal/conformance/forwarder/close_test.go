package forwarder_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/forwarder"
	"github.com/incursa/watermill-outbox/internal/faults"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
)

// A publisher that heeds nothing is named and left; what it was given goes back. Its goroutines end when it returns.
func TestTrap_CloseIsBounded(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		const drain = time.Second
		called, release := make(chan struct{}, 100), make(chan struct{})
		f.broker.answers(func(string, []*message.Message) error {
			called <- struct{}{}
			<-release
			return nil
		})
		f.Enqueue("orders", 0, 100)
		fw, err := forwarder.New(f.DB.DB, f.broker, f.config(func(c *forwarder.Config) { c.Subscriber.DrainTimeout = drain }), nil)
		f.NoError(err)
		ended := make(chan error, 1)
		go func() { ended <- fw.Run(context.WithoutCancel(t.Context())) }()
		<-called
		f.Becomes(outbox.InProgress, 40)

		begun := time.Now()
		closed := make(chan error, 1)
		go func() { closed <- fw.Close() }()
		select {
		case err = <-closed:
		case <-time.After(testoutbox.Patience):
			close(release)
			f.FailNow("Close does not return")
		}
		t.Logf("Close took %v: %v", time.Since(begun).Round(time.Millisecond), err)
		var hung *forwarder.HungError
		f.ErrorAs(err, &hung)
		f.Equal("*forwarder_test.broker", hung.Publisher)
		f.Equal([]string{"orders"}, hung.Destinations)
		f.Positive(hung.Messages)
		f.ErrorAs(<-ended, &hung, "Run returns it too")
		f.ErrorAs(fw.Close(), &hung, "and so does every call of Close")
		f.Equal(100, f.Count(outbox.Ready), "nothing is held")
		f.Equal(0, f.Attempts())
		close(release) // and goleak sees that all ends
	})
}

// Whoever hangs is named, and nobody else: here it is the database.
func TestTrap_ShutdownBlamesTheDatabaseAlone(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		var slow atomic.Bool
		waiting, release := make(chan struct{}, 1), make(chan struct{})
		db := faults.Open(t, f.DB, faults.Hooks{Before: func(context.Context, faults.Statement) error {
			if slow.Load() {
				select {
				case waiting <- struct{}{}:
				default:
				}
				<-release
			}
			return nil
		}})
		fw, err := forwarder.New(db, f.broker, f.config(), nil)
		f.NoError(err)
		ended := make(chan error, 1)
		go func() { ended <- fw.Run(context.WithoutCancel(t.Context())) }()
		<-fw.Running()
		slow.Store(true)
		<-waiting
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err = fw.Shutdown(ctx)
		slow.Store(false)
		close(release)
		f.ErrorIs(err, context.Canceled)
		f.NotContains(err.Error(), "OnState", "no callback was running")
		f.NoError(<-ended)
		f.NoError(fw.Shutdown(t.Context()), "again")
	})
}
