// Package kafka publishes to Kafka so that a forwarder can rely on it: with acks=all, idempotence, and a result for each
// message. It is built on franz-go.
//
// Records have watermill-kafka's form, with UUID and metadata as headers, so that its subscriber can read them. The stream
// key, if there is one, is the record key, and selects the partition as Kafka's own clients do: a stream stays in one
// partition. Messages without a key go to all partitions in turn.
//
// # What becomes of a message
//
//	outbox.Permanent      it is too large, or invalid, or has metadata of a reserved name; the topic's name is invalid
//	outbox.Unavailable    no broker, no leader, no answer in time, wrong credentials, no right to write to the topic, or no
//	                      such topic: held, no attempt spent, until that has changed
//	anything else         the forwarder finds out whether others get through
//
// Kafka accepts or rejects a batch as a whole. If it says that something in it is too large or invalid, the messages are
// sent again one by one, so that only the one at fault is refused.
//
// # When partitions are away
//
// The Publisher starts without a broker: the first Publish connects. Partitions do not wait for each other: once some
// messages have got through, Publish waits for the others no longer than RetryTimeout, and returns outbox.Unavailable for
// them. From then on it does so at once for the same partition, while the forwarder retries the messages that it holds from
// time to time.
//
// # Duplicates and order
//
// Batches that franz-go repeats within one Publish are written once. Messages that are published again after an error may be
// there twice. A partition takes the messages of one Publish at a time, and those with the same key in order and without a
// gap: if one is not written, those after it are not either, unless it was refused for good.
package kafka
