// Package eventstore is an event store on an outbox: an event is a message of its log that also has a version in a stream.
// What is appended is therefore read by consumer groups, policies and relays like any other message, in the same order.
//
// Append checks the stream's version and writes in one transaction, yours if you have one, with your rows and the messages
// that you publish. Versions begin with 1 and have no gap.
//
//	store.Append(ctx, tx, "order-7", eventstore.Exactly(3), events...)
//	for e, err := range store.Read(ctx, tx, "order-7", eventstore.ReadParams{}) { … }
//
// outbox.Migrate creates what it needs. Events get their positions in the log from an outbox.Sequencer, of which one must
// run: without it, streams can be written and read, but no follower of the log sees an event.
//
// # Reading
//
// Read reads a stream, ReadAll all events by position, and on and on if that is asked for. Both fetch up to 1,000 events at a
// time and hold no connection in between, so that a loop may be left at any point. A Projection keeps a view of all events, each
// applied once. An outbox.Subscriber with a ConsumerGroup delivers the events of a topic like any message, with
// HeaderStream, HeaderVersion and HeaderPosition.
//
// # Purging
//
// Purging the log leaves events. They go with their stream: Archive or Delete it, and Purge it when every consumer group has
// passed its events.
package eventstore
