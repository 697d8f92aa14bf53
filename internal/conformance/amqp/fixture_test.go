package amqp_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmamqp "github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	amqp091 "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/incursa/watermill-outbox/forwarder"
	"github.com/incursa/watermill-outbox/forwarder/amqp"
	configs "github.com/incursa/watermill-outbox/forwarder/amqp/wmamqp"
	"github.com/incursa/watermill-outbox/internal/testbroker"
)

// patience is how long a test waits for what has to happen.
const patience = time.Minute

// A broker is where a test publishes to, with queues of names that nobody else uses.
type broker struct {
	*require.Assertions
	t   *testing.T
	url string
}

// onBroker returns the broker that tests share.
func onBroker(t *testing.T) *broker {
	t.Helper()
	return &broker{require.New(t), t, testbroker.URL(t)}
}

// name is one that nobody else uses.
func (b *broker) name(prefix string) string { return prefix + "-" + strings.ToLower(rand.Text()[:10]) }

// queue names a queue that is deleted when the test ends.
func (b *broker) queue() string {
	name := b.name("queue")
	b.t.Cleanup(func() { b.admin(func(ch *amqp091.Channel) { _, _ = ch.QueueDelete(name, false, false, false) }) })
	return name
}

// admin does something on a connection of its own.
func (b *broker) admin(do func(*amqp091.Channel)) {
	b.t.Helper()
	conn, err := amqp091.Dial(b.url)
	b.NoError(err)
	ch, err := conn.Channel()
	b.NoError(err)
	do(ch)
	b.NoError(conn.Close())
}

func (b *broker) declare(queue string, args amqp091.Table) {
	b.t.Helper()
	b.admin(func(ch *amqp091.Channel) {
		_, err := ch.QueueDeclare(queue, true, false, false, false, args)
		b.NoError(err)
	})
}

func (b *broker) delete(queue string) {
	b.t.Helper()
	b.admin(func(ch *amqp091.Channel) {
		_, err := ch.QueueDelete(queue, false, false, false)
		b.NoError(err)
	})
}

// waiting is how many messages are in a queue, without those that a consumer holds.
func (b *broker) waiting(queue string) int {
	b.t.Helper()
	return b.inspect(queue).Messages
}

func (b *broker) inspect(queue string) (q amqp091.Queue) {
	b.t.Helper()
	b.admin(func(ch *amqp091.Channel) {
		var err error
		q, err = ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		b.NoError(err)
	})
	return q
}

// take takes one message out of a queue.
func (b *broker) take(queue string) (d amqp091.Delivery) {
	b.t.Helper()
	b.admin(func(ch *amqp091.Channel) {
		var ok bool
		var err error
		d, ok, err = ch.Get(queue, true)
		b.NoError(err)
		b.True(ok, "the queue is empty")
	})
	return d
}

// publisher is closed when the test ends.
func (b *broker) publisher(options ...func(*amqp.Config)) *amqp.Publisher {
	b.t.Helper()
	config := amqp.Config{URL: b.url}
	for _, option := range options {
		option(&config)
	}
	p, err := amqp.NewPublisher(config, nil)
	b.NoError(err)
	b.t.Cleanup(func() {
		if err := p.Close(); err != nil {
			b.t.Errorf("closing the publisher: %v", err)
		}
	})
	return p
}

func declares(queues ...string) func(*amqp.Config) {
	return func(c *amqp.Config) { c.DeclareQueues = queues }
}

// consume returns the messages of a queue as watermill-amqp receives them, until the test ends.
func (b *broker) consume(queue string) <-chan *message.Message {
	b.t.Helper()
	config := configs.Config(b.url)
	config.Consume.Qos.PrefetchCount = 100
	config.Connection.Reconnect = &wmamqp.ReconnectConfig{
		BackoffInitialInterval: 50 * time.Millisecond, BackoffMultiplier: 1.2, BackoffMaxInterval: 500 * time.Millisecond,
	}
	s, err := wmamqp.NewSubscriber(config, watermill.NopLogger{})
	b.NoError(err)
	messages, err := s.Subscribe(context.WithoutCancel(b.t.Context()), queue)
	b.NoError(err)
	b.t.Cleanup(func() { b.NoError(s.Close()) })
	return messages
}

func (b *broker) receive(messages <-chan *message.Message) *message.Message {
	b.t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case msg, open := <-messages:
		b.True(open, "the subscription has ended")
		msg.Ack()
		return msg
	case <-timer.C:
		b.FailNow("waited in vain for a message")
		return nil
	}
}

// drain empties a queue and counts what was in it, by UUID.
func (b *broker) drain(queue string) map[string]int {
	b.t.Helper()
	arrived := map[string]int{}
	b.drainTo(queue, func(d amqp091.Delivery) {
		uuid, ok := d.Headers["_watermill_message_uuid"].(string)
		b.True(ok)
		arrived[uuid]++
	})
	return arrived
}

// drainTo empties a queue, in its order.
func (b *broker) drainTo(queue string, do func(amqp091.Delivery)) {
	b.t.Helper()
	b.admin(func(ch *amqp091.Channel) {
		q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		b.NoError(err)
		deliveries, err := ch.Consume(queue, "", true, false, false, false, nil)
		b.NoError(err)
		timer := time.NewTimer(patience)
		defer timer.Stop()
		for range q.Messages {
			select {
			case d := <-deliveries:
				do(d)
			case <-timer.C:
				b.FailNow("the queue does not deliver what it has")
			}
		}
	})
}

// allArrived checks that each of n messages is there at least once, and answers how many came again.
func (b *broker) allArrived(arrived map[string]int, n int) (duplicates int) {
	b.t.Helper()
	lost := 0
	for i := range n {
		times := arrived[fmt.Sprint(i)]
		if times == 0 {
			lost++
		}
		duplicates += max(0, times-1)
	}
	b.Zero(lost, "messages are lost")
	b.Len(arrived, n)
	return duplicates
}

// messages of plain text, with the UUIDs 0, 1, 2 …
func messages(n int) []*message.Message {
	list := make([]*message.Message, n)
	for i := range list {
		list[i] = message.NewMessage(fmt.Sprint(i), fmt.Appendf(nil, "payload %d", i))
	}
	return list
}

// each are the errors of a Publish, one a message.
func (b *broker) each(err error, n int) []error {
	b.t.Helper()
	var batch *forwarder.BatchError
	b.True(errors.As(err, &batch), "%v is no BatchError", err)
	b.Len(batch.Errs, n)
	return batch.Errs
}
