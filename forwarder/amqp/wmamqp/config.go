// Package wmamqp has a configuration for watermill-amqp v2, the version that it is made for being 2.1.3. It is a package
// of its own so that forwarder/amqp does not bring watermill-amqp along.
//
// # The consuming side
//
// Config is what a subscriber needs for messages that forwarder/amqp has published, or that its own publisher has.
//
// # The publishing side
//
// To publish from an outbox use forwarder/amqp. The publisher of watermill-amqp waits for confirmations with this
// configuration, but
//
//   - a message that no queue has a binding for is lost, and Publish returns nil: it does not ask for returns;
//   - it declares no queue: until a consumer has, everything is lost;
//   - it waits for one confirmation after the other, so that a batch takes a round trip for each message;
//   - while RabbitMQ blocks its connection, for want of memory or disk, Publish waits forever.
//
// # Version 3
//
// Publishing and confirming are the same there. What changes is what you adapt: TopologyBuilder.BuildTopology takes its
// arguments as a struct, the key of a queue's binding is made from the topic and not from the queue's name,
// Exchange.GenerateName has a type of its own, and a message delivered again says so in its metadata, as
// _watermill_amqp_redelivered, which a strict consumer may not expect. Messages are the same, so that both versions, and
// forwarder/amqp, work on one queue.
package wmamqp

import "github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"

// Config is for durable queues, each named like its topic and reached by the default exchange: persistent messages,
// confirmed, on a pool of channels; a consumer takes up to 100 at a time.
func Config(url string) amqp.Config {
	config := amqp.NewDurableQueueConfig(url)
	config.Publish.ConfirmDelivery = true // not the default
	config.Publish.ChannelPoolSize = 16   // otherwise each Publish opens a channel
	config.Consume.Qos.PrefetchCount = 100
	return config
}
