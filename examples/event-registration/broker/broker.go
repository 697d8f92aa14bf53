// Package broker is RabbitMQ, or without one a broker in the process.
package broker

import (
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
)

// Queues are the durable queues, each with the topic whose messages it gets. A topic is one exchange, so that all that happens
// to an event stays in order; what happened is in a header.
var Queues = map[string]string{
	"registration.events": "catalog.event",
	"catalog.joins":       "registration.join",
	"mail.joins":          "registration.join",
}

// DeadLetters is the queue of the broker for what nobody can read of a queue.
func DeadLetters(queue string) string { return queue + ".dead" }

// HeaderWhy says in a dead letter of the broker why it is one.
const HeaderWhy = "dead_because"

// ErrNoDeadLetters is returned by Bury of a broker in the process.
var ErrNoDeadLetters = errors.New("the broker has no queue for dead letters")

// A Broker takes what forwarders publish, and delivers it to queues.
type Broker struct {
	Publisher  message.Publisher
	subscriber message.Subscriber
	topic      func(queue string) string
	durable    bool // it has queues for dead letters
}

// Subscription is what to subscribe to for the messages of a queue.
func (b *Broker) Subscription(queue string) (topic string, subscriber message.Subscriber) {
	return b.topic(queue), b.subscriber
}

// Bury moves a message of a queue to the queue of its dead letters. It returns ErrNoDeadLetters where there is none.
func (b *Broker) Bury(queue string, msg *message.Message, why error) error {
	if !b.durable {
		return ErrNoDeadLetters
	}
	dead := message.NewMessageWithContext(msg.Context(), msg.UUID, msg.Payload)
	for name, value := range msg.Metadata {
		dead.Metadata.Set(name, value)
	}
	dead.Metadata.Set(HeaderWhy, why.Error())
	if err := b.Publisher.Publish(DeadLetters(queue), dead); err != nil {
		return fmt.Errorf("bury a message of %s: %w", queue, err)
	}
	return nil
}

// Close ends the connections. Close what uses them first.
func (b *Broker) Close() error { return errors.Join(b.Publisher.Close(), b.subscriber.Close()) }

// InProcess returns a broker of this process. Publishing waits until all queues have the message in their inboxes, so the
// outbox keeps it until then: subscribe first.
func InProcess(logger watermill.LoggerAdapter) *Broker {
	channel := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, logger)
	return &Broker{Publisher: channel, subscriber: channel, topic: func(queue string) string { return Queues[queue] }}
}
