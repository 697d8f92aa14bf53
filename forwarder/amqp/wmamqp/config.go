// Package wmamqp has a configuration for watermill-amqp v2, made for version 2.1.3. It is a separate package so that
// forwarder/amqp does not depend on watermill-amqp.
//
// # The consuming side
//
// Config lets a subscriber of watermill-amqp read messages published by forwarder/amqp or by its own publisher.
//
// # The publishing side
//
// To publish from an outbox use forwarder/amqp. The publisher of watermill-amqp waits for confirmations with this
// configuration, but
//
//   - a message for which no queue is bound is lost, and Publish returns nil: it does not set the mandatory flag;
//   - it declares no queue: until a consumer does, everything is lost;
//   - it waits for one confirmation at a time, so that a batch takes a round trip per message;
//   - while RabbitMQ blocks its connection, for lack of memory or disk, Publish waits forever.
//
// # Version 3
//
// Publishing and confirming are the same there. What changes for you: TopologyBuilder.BuildTopology takes its arguments as a
// struct, the key of a queue's binding is made from the topic and not from the queue's name, Exchange.GenerateName has a
// type of its own, and a message delivered again says so in its metadata, as _watermill_amqp_redelivered, which a strict
// consumer may not expect. Messages are the same, so that both versions, and forwarder/amqp, work on one queue.
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
