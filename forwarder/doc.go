// Package forwarder relays messages from an outbox to a broker: to any Watermill publisher.
//
// A message is acknowledged in the outbox only when the publisher's Publish has returned without an error, so use
// publishers that wait for the broker's confirmation; forwarder/amqp and forwarder/kafka have them. UUID, payload and
// metadata arrive as they were published, without an envelope; a few headers are added.
//
// # When the broker is away
//
//	         a message was published
//	   ┌──────────────────────────────────┐
//	   ▼                                  │
//	closed ── nothing can be published ──▶ open: one message is tried, after longer and longer pauses
//
// While the breaker is open, the forwarder keeps what it holds, renews its leases and claims no more. No attempt is spent,
// however long it takes.
//
// When other messages can be published, a message that cannot is refused: it goes back to the outbox with the broker's
// reason, which spends an attempt, and fails for good after the last, or at once if the error is outbox.Permanent. A
// publisher can say what an error means, by Refused, outbox.Permanent or outbox.Unavailable.
//
// # Guarantees
//
//   - A committed message reaches the broker at least once. It may do so twice: after a crash between the broker's
//     confirmation and the acknowledgement, or where a publisher's error came after the broker had taken it.
//   - Messages of one topic are published in the order in which they were claimed; several forwarders, and messages that
//     are refused and tried again, make no promise of order.
//   - Close gives back what was not published.
package forwarder
