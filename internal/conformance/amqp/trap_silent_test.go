package amqp_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/forwarder"
	"github.com/incursa/watermill-outbox/forwarder/amqp"
	"github.com/incursa/watermill-outbox/internal/testbroker"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
)

// A forwarder whose publisher is still connecting, to what accepts and says nothing, closes without an error.
func TestTrap_CloseWhileTheBrokerDoesNotAnswerTheConnection(t *testing.T) {
	testoutbox.ForEach(t, func(t *testing.T, o *testoutbox.Outbox) {
		url, accepted := testbroker.Silent(t)
		b := &broker{require.New(t), t, url}
		r := &relay{o, b, "queue"}
		p := b.publisher(func(c *amqp.Config) { c.ConnectTimeout = patience })
		fw, err := forwarder.New(r.DB.DB, p, r.config(func(c *forwarder.Config) { c.Subscriber.DrainTimeout = 50 * time.Millisecond }), nil)
		r.NoError(err)
		ended := make(chan error, 1)
		go func() { ended <- fw.Run(context.WithoutCancel(t.Context())) }()
		r.Enqueue(r.queue, 0, 3)
		<-accepted
		r.NoError(fw.Close())
		r.NoError(<-ended)
		r.Equal(3, r.Count(outbox.Ready))
		r.Zero(r.Attempts())
	})
}
