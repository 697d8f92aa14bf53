package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	amqp091 "github.com/rabbitmq/amqp091-go"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/forwarder"
	"github.com/incursa/watermill-outbox/forwarder/amqp"
)

// forward measures messages a second from a full outbox into a queue of RabbitMQ until all are acknowledged, with one batch
// at a time, and with a second one that is sent while the first is being confirmed. Beside it, the same number is published
// by a loop that does nothing else: as many in a batch, persistent, confirmed, one batch at a time.
const (
	forward         = "forward"
	forwardMessages = 50_000
	forwardBatch    = 500
)

func measureForward(ctx context.Context, b *bench) (results []result, err error) {
	bare, err := openBareAMQP(b)
	if err != nil {
		return nil, fmt.Errorf("-amqp: %w", err)
	}
	defer func() { err = errors.Join(err, bare.close()) }()
	messages := b.count(forwardMessages)
	prepare := func(ctx context.Context) error {
		return errors.Join(b.fill(ctx, messages, 1, false), bare.purge())
	}
	timed := func(run func(context.Context) (time.Duration, error)) side {
		return func(ctx context.Context) ([]float64, error) {
			took, err := run(ctx)
			if err != nil {
				return nil, err
			}
			return []float64{float64(messages) / took.Seconds()}, bare.holds(messages)
		}
	}
	for _, concurrency := range []int{1, 2} {
		bares, products, err := b.compare(ctx, prepare,
			timed(func(context.Context) (time.Duration, error) { return bare.publish(messages) }),
			timed(func(ctx context.Context) (time.Duration, error) { return b.forward(ctx, messages, concurrency) }))
		if err != nil {
			return nil, err
		}
		r := perSecond(products[0], bares[0])
		r.Concurrency = concurrency
		results = append(results, r)
	}
	return results, nil
}

// forward is the product's side.
func (b *bench) forward(ctx context.Context, messages, concurrency int) (took time.Duration, err error) {
	publisher, err := amqp.NewPublisher(amqp.Config{
		URL: b.amqp, DeclareQueues: []string{b.prefix},
		Route: func(string) (exchange, routingKey string) { return "", b.prefix },
	}, nil)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, publisher.Close()) }()
	return b.forwardTo(ctx, publisher, topicName(0), messages, concurrency)
}

// forwardTo forwards everything to a topic of a broker.
func (b *bench) forwardTo(ctx context.Context, publisher message.Publisher, to string, messages, concurrency int) (took time.Duration, err error) {
	forwarded := make(chan struct{})
	var left atomic.Int64
	left.Store(int64(messages))
	f, err := forwarder.New(b.DB, publisher, forwarder.Config{
		Topics: []string{topicName(0)}, BatchSize: forwardBatch, Concurrency: concurrency,
		Destination: func(string, *message.Message) (string, error) { return to, nil },
		Subscriber: outbox.SubscriberConfig{
			Dialect: b.dialect, Table: b.tableName(),
			Hooks: outbox.Hooks{OnSettle: func(e outbox.SettleEvent) {
				acked := int64(e.Outcomes[outbox.Ack] - e.Refused)
				if acked > 0 && left.Add(-acked) == 0 {
					close(forwarded)
				}
			}},
		},
	}, nil)
	if err != nil {
		return 0, err
	}
	started := time.Now()
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	select {
	case <-forwarded:
		took = time.Since(started)
	case <-ctx.Done():
		err = ctx.Err()
	}
	return took, errors.Join(err, f.Close(), <-ended)
}

// A bareAMQP is the client alone.
type bareAMQP struct {
	conn    *amqp091.Connection
	channel *amqp091.Channel
	queue   string
	payload []byte
}

func openBareAMQP(b *bench) (*bareAMQP, error) {
	conn, err := amqp091.Dial(b.amqp)
	if err != nil {
		return nil, err
	}
	channel, err := conn.Channel()
	if err == nil {
		err = channel.Confirm(false)
	}
	if err == nil {
		_, err = channel.QueueDeclare(b.prefix, true, false, false, false, nil)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &bareAMQP{conn, channel, b.prefix, b.payload}, nil
}

func (q *bareAMQP) publish(messages int) (time.Duration, error) {
	started := time.Now()
	for from := 0; from < messages; from += forwardBatch {
		batch := make([]*amqp091.DeferredConfirmation, min(forwardBatch, messages-from))
		for i := range batch {
			uuid := watermill.NewUUID()
			var err error
			batch[i], err = q.channel.PublishWithDeferredConfirm("", q.queue, true, false, amqp091.Publishing{
				DeliveryMode: amqp091.Persistent, MessageId: uuid, Headers: amqp091.Table{"_watermill_message_uuid": uuid}, Body: q.payload,
			})
			if err != nil {
				return 0, err
			}
		}
		for _, confirmation := range batch {
			if !confirmation.Wait() {
				return 0, errors.New("the broker has not confirmed a message")
			}
		}
	}
	return time.Since(started), nil
}

func (q *bareAMQP) purge() error {
	_, err := q.channel.QueuePurge(q.queue, false)
	return err
}

// holds looks whether everything has arrived.
func (q *bareAMQP) holds(messages int) error {
	state, err := q.channel.QueueDeclarePassive(q.queue, true, false, false, false, nil)
	if err == nil && state.Messages != messages {
		err = fmt.Errorf("of %d messages the queue has %d", messages, state.Messages)
	}
	return err
}

func (q *bareAMQP) close() error {
	_, err := q.channel.QueueDelete(q.queue, false, false, false)
	return errors.Join(err, q.conn.Close())
}
