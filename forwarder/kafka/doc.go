// Package kafka publishes to Kafka so that a forwarder can rely on it: acks=all, idempotence, and an answer for each message.
//
// A record is in watermill-kafka's own form, UUID and metadata as headers, so that its subscriber reads it. The stream key,
// where a message has one, is the record key: all of a stream land in one partition.
//
// # Why not watermill-kafka's publisher
//
// It sends one message after the other and stops at the first that fails, without saying which. [Publisher] hands a batch
// to sarama's SyncProducer.SendMessages, which packs it by partition, and returns a *forwarder.BatchError with the fate of
// each message. Where watermill-kafka's publisher is wanted all the same, [WatermillConfig] makes it wait for all replicas.
//
//	refused for good     the message is too large, is invalid, or has metadata of a reserved name; the topic's name is
//	                     invalid; writing to the topic is not allowed
//	to be tried again    everything else: no broker, no leader, wrong credentials, no such topic, which may be created yet
//
// Kafka judges a batch of a partition as one. If it says that something in it is too large or invalid, its messages are
// sent again one by one, so that only the one at fault is refused.
//
// # When brokers are away
//
// No broker is needed to begin: the first Publish connects. When no broker can be reached, Publish says so within
// seconds, or within a minute if the network swallows what is sent, and leaves the waiting to the forwarder. When only some
// of the messages fail, as while a partition changes its leader, it goes on with these for RetryTimeout.
//
// # Duplicates and order
//
// Idempotence spares duplicates while a connection is mended within one Publish. What is published again after an error
// may be there twice. The messages of one Publish that have the same key are written in their order; if some of them fail,
// they come after those that did not.
package kafka
