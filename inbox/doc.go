// Package inbox protects handlers from messages that arrive twice, and lets a service receive messages now and handle them
// later. It remembers each message by a [Key]: where it came from, its id there, and its handler.
//
// # Life of an entry
//
//	a message is received
//	   │
//	   ├─ by middleware.Inbox: the handler runs, and entry, effects and result are committed together ────────▶ Done
//	   │
//	   └─ by Enqueue or Receive: entry and message of the queue are committed together, and the broker is answered
//	          │
//	          ▼
//	        Ready ⇄ In progress ──▶ Done        the life of a message in an outbox, with the same procedures
//	          ▲          └────────▶ Failed
//	          └────── Requeue ────────┘
//
//	the same key again: the same content is acknowledged and changes nothing; other content is a [MismatchError]
//	Purge, or a janitor, deletes entries that have ended; after that, the same key is new
//
// # Two ways to receive
//
// With middleware.Inbox a handler's effects happen once: what it writes and publishes in the transaction in its context
// (outbox.TxFrom) is committed with the entry. A message that arrives again is acknowledged without calling the handler, and
// the messages that it produced the first time are published again, because a crash may have prevented that.
//
// [Inbox.Receive] is a handler that puts messages into the queue, from any Watermill subscriber. Handlers get them from a
// Subscriber made by [NewSubscriber], with its retries, leases and dead letters. Delivery from there is at least once, as
// from any outbox: add middleware.Inbox there too, with the same [Identity] if you like, or use Delivery.SettleTx.
//
// # Tables
//
// The queue is an outbox named Inbox (inbox on PostgreSQL and SQLite) with all its procedures, such as Inbox_Claim and
// Inbox_Ack. Next to it is the table InboxEntry (inbox_entry). The view InboxEntry_View (inbox_entry_view) shows the entries
// to people. [Migrate] creates them.
package inbox
