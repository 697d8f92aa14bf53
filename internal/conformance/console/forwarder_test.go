package console_test

import (
	"os"
	"path/filepath"
	"testing"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/console"
	"github.com/incursa/watermill-outbox/forwarder"
	"github.com/incursa/watermill-outbox/forwarder/amqp"
	"github.com/incursa/watermill-outbox/internal/testbroker"
	"github.com/incursa/watermill-outbox/internal/testbrowser"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
)

// The page of forwarders follows a broker that goes away and comes back. Its picture for docs/console.md is saved by
// OUTBOX_TEST_PICTURES=FOLDER.
func TestLong_ForwardersAreShown(t *testing.T) {
	testoutbox.ForEach(t, func(_ *testing.T, o *testoutbox.Outbox) {
		node := testbroker.Node(o.T)
		const queue = "parcels"
		publisher, err := amqp.NewPublisher(amqp.Config{URL: node.URL(), DeclareQueues: []string{queue}}, nil)
		o.NoError(err)
		parcels, err := forwarder.New(o.DB.DB, publisher, forwarder.Config{Topics: []string{queue}, Subscriber: o.Subscriber()}, nil)
		o.NoError(err)
		ended := make(chan error, 1)
		go func() { ended <- parcels.Run(o.T.Context()) }()
		o.T.Cleanup(func() {
			o.NoError(parcels.Close())
			o.NoError(<-ended)
			o.NoError(publisher.Close())
		})
		f := serve(o, "shop", console.Config{Authorize: allow, Forwarders: map[string]*forwarder.Forwarder{"to the post": parcels}})
		b := testbrowser.Start(o.T)
		b.Window(1200, 420, false)
		b.Open(f.url + "forwarders") // and it follows by itself
		shows := func(texts ...string) {
			for _, text := range texts {
				b.Reads("#forwarders", text)
			}
		}

		f.Enqueue(queue, 0, 3)
		f.Becomes(outbox.Done, 3)
		shows("to the post", "closed", "3")
		o.NoError(node.Stop())
		f.Enqueue(queue, 3, 2)
		shows("open", "refused")
		if folder := os.Getenv("OUTBOX_TEST_PICTURES"); folder != "" {
			b.Picture(filepath.Join(folder, "forwarders.png"))
		}
		status := parcels.Status()
		o.Equal(forwarder.Open, status.State)
		o.Equal(2, status.Waiting)
		o.Error(status.LastError)
		o.True(status.LastErrorAt.After(status.LastForwarded))
		o.NoError(node.Start(o.T.Context()))
		f.Becomes(outbox.Done, 5)
		shows("closed", "5")
		o.Zero(parcels.Status().Waiting)
		b.Quiet()
	})
}
