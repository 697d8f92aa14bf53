// Package inbox guards handlers against messages that come twice, and lets a service receive now and work later. It remembers
// each message under a [Key]: where it came from, its id there, and the handler it is for.
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
// With middleware.Inbox a handler's effects happen once: what it writes and publishes in the transaction that it finds in
// its context (outbox.TxFrom) is committed with the entry. A message that comes again is acknowledged without the handler,
// and the messages that it produced the first time are published again, for that may be what a crash has prevented.
//
// [Inbox.Receive] is a handler that puts messages into the queue, from any Watermill subscriber. Handlers read them from a
// Subscriber of [NewSubscriber], with its retries, leases and dead letters. Delivery from there is at least once, as from
// any outbox: add middleware.Inbox there too, under the same [Identity] if you like, or use Delivery.SettleTx.
//
// # Tables
//
// The queue is an outbox of the name Inbox (inbox on PostgreSQL and SQLite) with all its procedures, Inbox_Claim, Inbox_Ack,
// Inbox_Abandon, Inbox_Fail, Inbox_Reap and so on, and beside it stands the table InboxEntry (inbox_entry). The view
// InboxEntry_View (inbox_entry_view) shows the entries to people. [Migrate] creates them.
package inbox
