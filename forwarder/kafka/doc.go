// Package kafka publishes to Kafka so that a forwarder can rely on it: acks=all, idempotence, and an answer for each message.
//
// A record is in watermill-kafka's own form, UUID and metadata as headers, so that its subscriber reads it. The stream key,
// where a message has one, is the record key: all of a stream land in one partition.
//
// # Why a producer of its own
//
// Watermill-kafka's publisher sends one message after the other and stops at the first that fails, without saying which.
// Sarama's producer, which it uses, can send batches; but when it is idempotent, and gives up on some messages, it numbers
// others so that Kafka takes them for repetitions and drops them, without an error. (Versions 1.43 and 1.60; the tests here
// show it, lost messages and all, for whoever puts it back.) So [Publisher] has sarama's connections, and packs, numbers and
// repeats its batches itself: one request to each leader at a time, one batch a partition, and a number stands for one
// batch for ever. It answers with a *forwarder.BatchError, which has the fate of each message.
//
// [WatermillConfig] is for those who want watermill-kafka's publisher all the same.
//
// # What becomes of a message
//
//	refused for good     it is too large, or invalid, or has metadata of a reserved name; the topic's name is invalid;
//	                     writing to the topic is not allowed
//	to be tried again    everything else: no broker, no leader, wrong credentials, no such topic, which may be created yet
//
// Kafka judges a batch as one. If it says that something in it is too large or invalid, its messages are sent again one by
// one, so that only the one at fault is refused.
//
// # When brokers are away
//
// No broker is needed to begin: the first Publish connects. When no broker can be reached, Publish says so within
// seconds, or within a minute if the network swallows what is sent, and leaves the waiting to the forwarder. When only some
// of the messages fail, as while a partition changes its leader, it goes on with these for RetryTimeout.
//
// # Duplicates and order
//
// Batches that are repeated within one Publish are written once. What is published again after an error may be there twice.
// The messages of one Publish that have the same key are written in their order, without a gap: if one is not written,
// those after it are not either, unless it was refused for good.
package kafka
