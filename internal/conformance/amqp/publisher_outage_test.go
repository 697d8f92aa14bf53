package amqp_test

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/incursa/watermill-outbox/forwarder/amqp"
	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/testbroker"
)

func TestABrokerThatIsNotThereIsAnOutageWithItsReason(t *testing.T) {
	t.Parallel()
	b := onBroker(t)
	u, err := url.Parse(b.url)
	b.NoError(err)
	u.User = url.UserPassword("nobody", "a secret")
	for address, reason := range map[string]string{
		u.String():                            "username or password",
		"amqp://guest:a%20secret@127.0.0.1:1": "connection refused",
		b.url + "a vhost":                     "vhost",
	} {
		p := b.publisher(func(c *amqp.Config) { c.URL = strings.ReplaceAll(address, " ", "%20") })
		for range 2 { // the second without another attempt, perhaps
			err := b.each(p.Publish("q", messages(1)...), 1)[0]
			b.True(base.IsUnavailable(err), "%v", err)
			b.ErrorContains(err, reason)
			b.NotContains(err.Error(), "secret")
		}
	}
}

func TestACutConnectionIsAnOutageAndMadeAgain(t *testing.T) {
	t.Parallel()
	b := onBroker(t)
	queue := b.queue()
	proxy := testbroker.NewProxy(t, b.url)
	p := b.publisher(declares(queue), func(c *amqp.Config) { c.URL = proxy.URL })
	b.NoError(p.Publish(queue, messages(1)...))

	proxy.Hold() // what the broker confirms does not arrive
	published := make(chan error)
	go func() { published <- p.Publish(queue, messages(10)...) }()
	b.Eventually(func() bool { return b.waiting(queue) == 11 }, patience, 10*time.Millisecond)
	b.Equal(1, proxy.Cut())
	proxy.Release()
	for _, err := range b.each(<-published, 10) {
		b.True(base.IsUnavailable(err), "%v", err)
	}
	b.NoError(p.Publish(queue, messages(10)...))
	b.Equal(21, b.waiting(queue))
}

func TestABrokerThatDoesNotConfirmIsAnOutage(t *testing.T) {
	t.Parallel()
	b := onBroker(t)
	queue := b.queue()
	proxy := testbroker.NewProxy(t, b.url)
	p := b.publisher(declares(queue), func(c *amqp.Config) { c.URL, c.ConfirmTimeout = proxy.URL, 2*time.Second })
	b.NoError(p.Publish(queue, messages(1)...))
	proxy.Hold()
	for _, err := range b.each(p.Publish(queue, messages(2)...), 2) {
		b.True(base.IsUnavailable(err))
		b.ErrorContains(err, "2s")
	}
	proxy.Release()
	b.NoError(p.Publish(queue, messages(1)...))
}

func TestABrokerThatDoesNotAnswerTheConnectionIsAnOutage(t *testing.T) {
	t.Parallel()
	b := onBroker(t)
	proxy := testbroker.NewProxy(t, b.url)
	proxy.Hold()
	p := b.publisher(func(c *amqp.Config) { c.URL, c.ConnectTimeout = proxy.URL, 200*time.Millisecond })
	err := b.each(p.Publish("q", messages(1)...), 1)[0]
	b.True(base.IsUnavailable(err))
	b.ErrorContains(err, "does not answer")
}

// With a watermark that is always passed, RabbitMQ blocks whoever publishes.
func TestLong_ABlockedConnectionIsAnOutageWithItsReason(t *testing.T) {
	t.Parallel()
	node := testbroker.Node(t, "vm_memory_high_watermark.absolute = 1MB")
	b := &broker{require.New(t), t, node.URL()}
	queue := b.queue()
	p := b.publisher(declares(queue), func(c *amqp.Config) { c.ConfirmTimeout = 500 * time.Millisecond })
	b.EventuallyWithT(func(c *assert.CollectT) { // it looks from time to time
		assert.ErrorContains(c, p.Publish(queue, messages(1)...), "blocked")
	}, patience, 10*time.Millisecond)
	for range 2 {
		for _, err := range b.each(p.Publish(queue, messages(2)...), 2) {
			b.True(base.IsUnavailable(err))
			b.ErrorContains(err, "blocked")
			b.ErrorContains(err, "memory")
		}
	}
}
