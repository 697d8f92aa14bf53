package amqp_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	amqp091 "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/forwarder"
	"github.com/incursa/watermill-outbox/forwarder/amqp"
	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/testbroker"
)

func TestMessagesArriveAtWatermillAMQPByteForByte(t *testing.T) {
	t.Parallel()
	b := onBroker(t)
	queue := b.queue()
	p := b.publisher(declares(queue))
	arrived := b.consume(queue)

	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	for name, msg := range map[string]*message.Message{
		"all bytes":     {UUID: "1", Payload: all, Metadata: message.Metadata{"a": "b"}},
		"empty":         {UUID: "2", Payload: []byte{}, Metadata: message.Metadata{}},
		"no metadata":   {UUID: "3", Payload: []byte("x")},
		"odd names":     {UUID: "4 \"'😀", Payload: []byte("x"), Metadata: message.Metadata{"": "", "Zürich 😀": "é\x00\"\n", strings.Repeat("n", 255): "v"}},
		"long":          {UUID: strings.Repeat("u", 5000), Payload: make([]byte, 300<<10), Metadata: message.Metadata{"long": strings.Repeat("v", 50_000)}},
		"the outbox's":  {UUID: "5", Payload: []byte("x"), Metadata: message.Metadata{outbox.HeaderMessageID: "an id", "correlation_id": "cause"}},
		"long metadata": {UUID: "6", Metadata: message.Metadata{"correlation_id": strings.Repeat("c", 300)}},
	} {
		b.NoError(p.Publish(queue, msg), name)
		got := b.receive(arrived)
		b.Equal(msg.UUID, got.UUID, name)
		b.Equal(append([]byte{}, msg.Payload...), append([]byte{}, got.Payload...), name)
		b.Len(got.Metadata, len(msg.Metadata), name)
		for key, value := range msg.Metadata {
			b.Equal(value, got.Metadata[key], name)
		}
	}
}

func TestMessagesArePersistentAndNamed(t *testing.T) {
	t.Parallel()
	b := onBroker(t)
	queue := b.queue()
	p := b.publisher(declares(queue))
	msg := message.NewMessage("a uuid", nil)
	msg.Metadata = message.Metadata{outbox.HeaderMessageID: "the outbox's id", "correlation_id": "cause"}
	b.NoError(p.Publish(queue, msg))
	d := b.take(queue)
	b.Equal(amqp091.Persistent, d.DeliveryMode)
	b.Equal("the outbox's id", d.MessageId)
	b.Equal("cause", d.CorrelationId)
	b.Equal("a uuid", d.Headers["_watermill_message_uuid"])

	b.NoError(p.Publish(queue, message.NewMessage("a uuid", nil)))
	b.Equal("a uuid", b.take(queue).MessageId)
	b.NoError(p.Publish(queue))
}

func TestTheTopologyIsDeclaredAndRoutedBy(t *testing.T) {
	t.Parallel()
	b := onBroker(t)
	queue, exchange := b.queue(), b.name("exchange")
	p := b.publisher(func(c *amqp.Config) {
		c.Topology = amqp.Topology{
			Exchanges: []amqp.Exchange{{Name: exchange, Kind: "topic"}},
			Queues:    []amqp.Queue{{Name: queue, Args: map[string]any{"x-max-length": 100}}},
			Bindings:  []amqp.Binding{{Queue: queue, Exchange: exchange, RoutingKey: "orders.*"}},
		}
		c.Route = func(topic string) (string, string) { return exchange, topic }
	})
	t.Cleanup(func() { b.admin(func(ch *amqp091.Channel) { b.NoError(ch.ExchangeDelete(exchange, false, false)) }) })
	b.NoError(p.Publish("orders.new", messages(3)...))
	b.Equal(3, b.waiting(queue))
	for _, err := range b.each(p.Publish("bills.new", messages(2)...), 2) {
		b.ErrorIs(err, amqp.ErrUnroutable)
	}

	// What is there already, and different, is named.
	other := b.publisher(func(c *amqp.Config) { c.DeclareQueues = []string{queue} })
	err := other.Publish(queue, messages(1)...)
	b.ErrorContains(err, fmt.Sprintf("declare the queue %q", queue))
	b.True(base.IsUnavailable(b.each(err, 1)[0]))
}

func TestAnUnroutableMessageIsRefusedWithTheReason(t *testing.T) {
	t.Parallel()
	b := onBroker(t)
	queue := b.queue()
	p := b.publisher()
	for _, err := range b.each(p.Publish(queue, messages(300)...), 300) {
		b.ErrorIs(err, amqp.ErrUnroutable)
		b.True(forwarder.IsRefused(err))
		b.False(outbox.IsPermanent(err) || base.IsUnavailable(err))
		b.ErrorContains(err, queue)
	}
	b.declare(queue, nil)
	b.NoError(p.Publish(queue, messages(300)...))
	b.Equal(300, b.waiting(queue))
	b.delete(queue)
	b.ErrorIs(p.Publish(queue, messages(1)...), amqp.ErrUnroutable)
}

// An event to which nobody has subscribed is no error where that is what events are for.
func TestAnUnroutableMessageCanBeDropped(t *testing.T) {
	t.Parallel()
	b := onBroker(t)
	queue := b.queue()
	p := b.publisher(func(c *amqp.Config) { c.Unroutable = amqp.Drop })
	b.NoError(p.Publish(queue, messages(300)...))
	b.declare(queue, nil)
	b.NoError(p.Publish(queue, messages(3)...))
	b.Equal(3, b.waiting(queue))

	_, err := amqp.NewPublisher(amqp.Config{URL: "amqp://127.0.0.1", Unroutable: 7}, nil)
	var bad *outbox.FieldError
	b.ErrorAs(err, &bad)
	b.Equal("Config.Unroutable", bad.Field)
}

// Every message of every call gets its own answer, though all go through one channel and have the same names.
func TestAnswersReachTheirMessagesInManyCalls(t *testing.T) {
	t.Parallel()
	b := onBroker(t)
	there, gone := b.queue(), b.queue()
	p := b.publisher(declares(there))
	var calls sync.WaitGroup
	for range 16 {
		calls.Go(func() {
			for i := range 50 {
				if i%2 == 0 {
					if err := p.Publish(there, messages(10)...); err != nil {
						t.Error(err)
					}
					continue
				}
				var batch *forwarder.BatchError
				if err := p.Publish(gone, messages(10)...); !errors.As(err, &batch) {
					t.Errorf("%v is no BatchError", err)
					return
				}
				for _, err := range batch.Errs {
					if !errors.Is(err, amqp.ErrUnroutable) {
						t.Error(err)
					}
				}
			}
		})
	}
	calls.Wait()
	b.Equal(16*25*10, b.waiting(there))
}

func TestAMissingExchangeIsRefused(t *testing.T) {
	t.Parallel()
	b := onBroker(t)
	queue, exchange := b.queue(), b.name("exchange")
	p := b.publisher(declares(queue), func(c *amqp.Config) {
		c.Route = func(topic string) (string, string) {
			if topic == "nowhere" {
				return exchange, topic
			}
			return "", topic
		}
	})
	for _, err := range b.each(p.Publish("nowhere", messages(100)...), 100) {
		b.True(forwarder.IsRefused(err))
		b.ErrorContains(err, exchange)
		b.ErrorContains(err, "404")
	}
	b.NoError(p.Publish(queue, messages(1)...))
}

// A header CC has to be a list for RabbitMQ, which closes the channel: only the message that has it is to blame.
func TestAChannelClosedInMidBatchFailsOneMessage(t *testing.T) {
	t.Parallel()
	b := onBroker(t)
	queue := b.queue()
	p := b.publisher(declares(queue))
	var others sync.WaitGroup
	for range 4 { // on the same channel
		others.Go(func() {
			for range 25 {
				if err := p.Publish(queue, messages(20)...); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 5 {
		batch := messages(100)
		batch[40].Metadata.Set("CC", "is no list")
		errs := b.each(p.Publish(queue, batch...), 100)
		for i, err := range errs {
			if i == 40 {
				b.True(outbox.IsPermanent(err), "%v", err)
				b.ErrorContains(err, "CC")
				continue
			}
			b.NoError(err)
		}
	}
	others.Wait()
	b.GreaterOrEqual(b.waiting(queue), 4*25*20+5*99)
}

func TestWhatDoesNotFitFailsForGoodBeforeItIsSent(t *testing.T) {
	t.Parallel()
	b := onBroker(t)
	queue := b.queue()
	p := b.publisher(declares(queue), func(c *amqp.Config) { c.MaxPayload = 100 })
	big := message.NewMessage("1", make([]byte, 101))
	name := message.NewMessage("2", nil)
	name.Metadata.Set(strings.Repeat("n", 256), "v")
	headers := message.NewMessage("3", nil)
	headers.Metadata.Set("v", strings.Repeat("v", 200_000)) // more than a frame
	errs := b.each(p.Publish(queue, message.NewMessage("0", make([]byte, 100)), big, name, headers), 4)
	b.NoError(errs[0])
	for i, reason := range []string{"101 bytes", "256 bytes", "frame_max"} {
		b.True(outbox.IsPermanent(errs[i+1]))
		b.ErrorContains(errs[i+1], reason)
	}
	err := b.each(p.Publish(strings.Repeat("k", 256), messages(1)...), 1)[0]
	b.True(outbox.IsPermanent(err))
	b.NoError(p.Publish(queue, messages(1)...))
}

func TestLong_APayloadOverTheBrokersLimitFailsForGood(t *testing.T) {
	t.Parallel()
	node := testbroker.Node(t, "max_message_size = 100000")
	b := &broker{require.New(t), t, node.URL()}
	queue := b.queue()
	p := b.publisher(declares(queue))
	batch := messages(20)
	batch[7] = message.NewMessage("7", make([]byte, 100_001))
	for i, err := range b.each(p.Publish(queue, batch...), 20) {
		if i == 7 {
			b.True(outbox.IsPermanent(err))
			b.ErrorContains(err, "100000")
			continue
		}
		b.NoError(err)
	}
}

// A queue that is full and rejects: the publisher says so, and not that it is the message's fault.
func TestANackIsAnError(t *testing.T) {
	t.Parallel()
	b := onBroker(t)
	queue := b.queue()
	b.declare(queue, amqp091.Table{"x-max-length": 3, "x-overflow": "reject-publish"})
	p := b.publisher()
	b.NoError(p.Publish(queue, messages(3)...))
	for _, err := range b.each(p.Publish(queue, messages(2)...), 2) {
		b.ErrorIs(err, amqp.ErrNacked)
		b.False(outbox.IsPermanent(err) || base.IsUnavailable(err) || forwarder.IsRefused(err))
	}
}

func TestCloseInterruptsAPublishThatWaits(t *testing.T) {
	t.Parallel()
	b := onBroker(t)
	queue := b.queue()
	proxy := testbroker.NewProxy(t, b.url)
	p := b.publisher(declares(queue), func(c *amqp.Config) { c.URL = proxy.URL })
	b.NoError(p.Publish(queue, messages(1)...))
	proxy.Hold()
	published := make(chan error)
	go func() { published <- p.Publish(queue, messages(2)...) }()
	b.Eventually(func() bool { return b.waiting(queue) == 3 }, patience, 10*time.Millisecond)

	var closing sync.WaitGroup
	for range 3 {
		closing.Go(func() {
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	for _, err := range b.each(<-published, 2) {
		b.True(base.IsUnavailable(err))
		b.ErrorContains(err, "closed")
	}
	closing.Wait()
	b.NoError(p.Close())
	b.ErrorContains(p.Publish(queue, messages(1)...), "closed")
}

func TestCloseInterruptsConnecting(t *testing.T) {
	t.Parallel()
	b := onBroker(t)
	proxy := testbroker.NewProxy(t, b.url)
	proxy.Hold()
	p := b.publisher(func(c *amqp.Config) { c.URL = proxy.URL })
	published := make(chan error)
	go func() { published <- p.Publish("q", messages(1)...) }()
	b.Eventually(func() bool { return proxy.Clients() == 1 }, patience, time.Millisecond)
	b.NoError(p.Close())
	b.ErrorContains(<-published, "closed")
}

func TestAMessageWhoseContextHasEndedIsNotPublished(t *testing.T) {
	t.Parallel()
	b := onBroker(t)
	queue := b.queue()
	proxy := testbroker.NewProxy(t, b.url)
	p := b.publisher(declares(queue), func(c *amqp.Config) { c.URL = proxy.URL })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	batch := messages(3)
	batch[1].SetContext(ctx)
	errs := b.each(p.Publish(queue, batch...), 3)
	b.NoError(errs[0])
	b.ErrorIs(errs[1], context.Canceled)
	b.NoError(errs[2])
	b.Equal(2, b.waiting(queue))

	// Nor is it waited for any longer.
	proxy.Hold()
	ctx, cancel = context.WithCancel(t.Context())
	batch = messages(2)
	for _, msg := range batch {
		msg.SetContext(ctx)
	}
	published := make(chan error)
	go func() { published <- p.Publish(queue, batch...) }()
	b.Eventually(func() bool { return b.waiting(queue) == 4 }, patience, 10*time.Millisecond)
	cancel()
	b.ErrorIs(<-published, context.Canceled)
	proxy.Release()
}
