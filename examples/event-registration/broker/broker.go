// Package broker is RabbitMQ, or without one a broker in the process.
package broker

import (
	"errors"

	"github.com/ThreeDotsLabs/watermill"
	watermillamqp "github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/incursa/watermill-outbox/forwarder/amqp"
	"github.com/incursa/watermill-outbox/forwarder/amqp/wmamqp"
)

// Queues are the durable queues, each with the topic whose messages it gets. A topic is one exchange, so that all that happens
// to an event stays in order; what happened is in a header.
var Queues = map[string]string{
	"registration.events": "catalog.event",
	"catalog.joins":       "registration.join",
	"mail.joins":          "registration.join",
}

// A Broker takes what forwarders publish, and delivers it to queues.
type Broker struct {
	Publisher  message.Publisher
	subscriber message.Subscriber
	topic      func(queue string) string
}

// Subscription is what to subscribe to for the messages of a queue.
func (b *Broker) Subscription(queue string) (topic string, subscriber message.Subscriber) {
	return b.topic(queue), b.subscriber
}

// Close ends the connections. Close what uses them first.
func (b *Broker) Close() error { return errors.Join(b.Publisher.Close(), b.subscriber.Close()) }

// InProcess returns a broker of this process. Publishing waits until all queues have the message in their inboxes, so the
// outbox keeps it until then: subscribe first.
func InProcess(logger watermill.LoggerAdapter) *Broker {
	channel := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, logger)
	return &Broker{Publisher: channel, subscriber: channel, topic: func(queue string) string { return Queues[queue] }}
}

// RabbitMQ returns a broker at a URL. It connects when it is used.
func RabbitMQ(url string, logger watermill.LoggerAdapter) (*Broker, error) {
	var topology amqp.Topology
	for queue, topic := range Queues {
		topology.Exchanges = append(topology.Exchanges, amqp.Exchange{Name: topic, Kind: "fanout"})
		topology.Queues = append(topology.Queues, amqp.Queue{Name: queue})
		topology.Bindings = append(topology.Bindings, amqp.Binding{Queue: queue, Exchange: topic})
	}
	publisher, err := amqp.NewPublisher(amqp.Config{
		URL: url, Topology: topology, Route: func(topic string) (exchange, key string) { return topic, "" },
	}, logger)
	if err != nil {
		return nil, err
	}
	subscriber, err := watermillamqp.NewSubscriber(wmamqp.Config(url), logger)
	if err != nil {
		return nil, errors.Join(err, publisher.Close())
	}
	return &Broker{Publisher: publisher, subscriber: subscriber, topic: func(queue string) string { return queue }}, nil
}
