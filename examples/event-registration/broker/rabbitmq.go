package broker

import (
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	watermillamqp "github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/incursa/watermill-outbox/forwarder/amqp"
	"github.com/incursa/watermill-outbox/forwarder/amqp/wmamqp"
)

// RabbitMQ returns a broker at a URL. It connects when it is used, and again whenever the connection is lost.
func RabbitMQ(url string, logger watermill.LoggerAdapter) (*Broker, error) {
	exchanges := map[string]bool{}
	var topology amqp.Topology
	for queue, topic := range Queues {
		if !exchanges[topic] {
			topology.Exchanges = append(topology.Exchanges, amqp.Exchange{Name: topic, Kind: "fanout"})
		}
		exchanges[topic] = true
		topology.Queues = append(topology.Queues, amqp.Queue{Name: queue}, amqp.Queue{Name: DeadLetters(queue)})
		topology.Bindings = append(topology.Bindings, amqp.Binding{Queue: queue, Exchange: topic})
	}
	publisher, err := amqp.NewPublisher(amqp.Config{
		URL: url, Topology: topology, Route: func(topic string) (exchange, key string) {
			if exchanges[topic] {
				return topic, ""
			}
			return "", topic // a queue of dead letters
		},
	}, logger)
	if err != nil {
		return nil, err
	}
	config := wmamqp.Config(url)
	config.Marshaler = reader{config.Marshaler}
	config.Connection.Reconnect = watermillamqp.DefaultReconnectConfig()
	config.Connection.Reconnect.BackoffMaxInterval = 2 * time.Second
	subscriber := newPatient(func() (message.Subscriber, error) { return watermillamqp.NewSubscriber(config, logger) }, logger)
	return &Broker{Publisher: publisher, subscriber: subscriber, topic: func(queue string) string { return queue }, durable: true}, nil
}

var errNothing = errors.New("the channel has ended")

// reader reads every message. One that it cannot read has no id, and so becomes a dead letter; a subscriber that returns an
// error would get it again at once, for ever.
type reader struct{ watermillamqp.Marshaler }

func (r reader) Unmarshal(delivery amqp091.Delivery) (*message.Message, error) {
	if delivery.Acknowledger == nil {
		return nil, errNothing
	}
	msg, err := r.Marshaler.Unmarshal(delivery)
	if err != nil {
		msg = message.NewMessage("", delivery.Body)
		msg.Metadata.Set(HeaderWhy, err.Error())
	}
	return msg, nil
}
