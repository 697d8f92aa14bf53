// Package kafka publishes to Kafka so that a forwarder can rely on it: acks=all, idempotence, and an answer for each message.
// It is built on franz-go.
//
// A record is in watermill-kafka's form, UUID and metadata as headers, so that its subscriber reads it. The stream key, where
// a message has one, is the record key, and the partition is the one that Kafka's own clients choose for it: all of a
// stream land in one. Messages without a key go to all partitions by turns.
//
// # What becomes of a message
//
//	outbox.Permanent      it is too large, or invalid, or has metadata of a reserved name; the topic's name is invalid
//	outbox.Unavailable    no broker, no leader, no answer in time, wrong credentials, no right to write to the topic, or no
//	                      such topic: held, no attempt spent, until that has changed
//	anything else         the forwarder finds out whether others get through
//
// Kafka judges a batch as one. If it says that something in it is too large or invalid, its messages are sent again one by
// one, so that only the one at fault is refused.
//
// # When partitions are away
//
// No broker is needed to begin: the first Publish connects. Partitions do not wait for each other: once some messages have
// got through, Publish waits for the others no longer than RetryTimeout, and answers outbox.Unavailable for them. From then
// on it answers so at once for what comes to the same partition, while the forwarder tries again, now and then, those that
// it holds.
//
// # Duplicates and order
//
// Batches that franz-go repeats within one Publish are written once. What is published again after an error may be there
// twice. A partition takes the messages of one Publish at a time, and those of the same key in their order, without a gap:
// if one is not written, those after it are not either, unless it was refused for good.
package kafka
