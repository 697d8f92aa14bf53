// Package forwarder relays messages from an outbox to a broker: to any Watermill publisher.
//
// A message is acknowledged in the outbox only once the publisher's Publish has returned without an error, so use publishers
// that wait for the broker's confirmation, such as those of forwarder/amqp and forwarder/kafka. UUID, payload and metadata
// arrive as they were published, without an envelope; a few headers are added.
//
// # When the broker is away
//
// Messages that cannot be published are held, their leases are renewed, and they are retried with growing pauses. No attempt
// is spent, however long it takes. While nothing gets through at all, the breaker is open (OnState) and, once enough is
// held, nothing more is claimed.
//
// When only a part of the broker is away, such as a partition or a queue, the others go on:
//
//	the publisher says Unavailable ──▶ held, and those of its stream behind it
//	                                     │ a quarter of MaxInFlight is held, and others get through
//	                                     ▼
//	                                   back in the outbox for a while, and those of its stream with it
//
// A message that cannot be published for another reason, while others can, is refused: it goes back to the outbox with the
// broker's reason, which spends an attempt. It fails for good after the last one, or at once if the error is
// outbox.Permanent. A publisher can say what an error means with Refused, outbox.Permanent or outbox.Unavailable.
//
// # Guarantees
//
//   - A committed message reaches the broker at least once. It may arrive twice: after a crash between the broker's
//     confirmation and the acknowledgement, or if a publisher failed after the broker had accepted it.
//   - Messages of one topic, destination and stream key are published in order, by any number of forwarders, through outages
//     and rejections. The order within one call of Publish is the publisher's; with MaxStreamRun 1 no call has two messages
//     of a stream. Messages without a key are published in the order in which they were claimed while nothing fails, by one
//     forwarder with a Concurrency of 1.
//   - Close gives back what was not published, and returns within DrainTimeout and 15 s, whatever the publisher does.
package forwarder
