// Package outbox is a transactional outbox: a Watermill Publisher and Subscriber over a table in the application's own
// database, on SQL Server, PostgreSQL and SQLite. Rows and messages are committed in one transaction, or neither is; what
// was committed is delivered at least once.
//
// # Life of a message
//
//	        InTx, WithTx, Publish
//	                │ commit
//	                ▼
//	┌────────────▶ Ready ◀─────────────────────────────────┐
//	│               │ claim, under a lease                 │
//	│               ▼                                      │ nack: after a backoff, attempt + 1
//	│          In progress ────────────────────────────────┤ worker died: lease expires, attempt + 1
//	│               │ deliver to the handler               │ Close: released, no attempt spent
//	│          ┌────┴───────────────────┐
//	│          │ Permanent(err),        │ ack, or SettleTx
//	│          │ or the last attempt    │ in the handler's transaction
//	│ Requeue  ▼                        ▼
//	└─────── Failed                    Done
//	           └──── kept until Purge ──┘
//
// A message is Ready from the commit on; before its due time, and during a backoff, no claim takes it. A claim gives it to
// one worker under a lease and a token of its own. The Subscriber renews the lease while the handler runs. Whoever has lost
// a lease changes nothing any more.
//
// # Guarantees
//
//   - A message is published if, and only if, its transaction commits.
//   - A committed message is delivered at least once, also when workers are killed. It may be delivered twice: after a
//     crash, or after a lease was lost. [Delivery.SettleTx] makes effects in the same database happen once.
//   - No two workers hold a message at once.
//   - A message that fails holds up no other, and there is no order among messages: but for those of one topic and stream key
//     ([Message].StreamKey), which are delivered in order, one at a time, each when those before it have ended.
//   - A message that keeps failing ends as Failed, with its last error, and stays until it is requeued or purged.
//   - Payload, UUID and metadata come back as they were.
//   - The database's clock decides on leases, due times and backoff; a worker's clock decides nothing.
//   - Nothing but [Migrate] creates anything. Payloads are never logged.
//
// # Use
//
// [Migrate] the database. Publish through a [Publisher] in the context of [InTx], or of [WithTx] and your own transaction.
// Give a [Subscriber] to any Watermill router, and add middleware.Outcome first, so that a handler's error reaches the
// row. An [Outbox] has the same queue as plain calls, for tools and for workers of your own.
//
// # Import graph
//
// Imports point one way, and each floor uses only those below it.
//
//	examples/…, internal/…      programs and tests, in modules of their own where they import drivers
//	forwarder/amqp, …/kafka     publishers for the forwarder; modules that alone bring the clients of brokers
//	forwarder                   from the outbox to any publisher
//	middleware, wake/pgx        around the outbox; wake/pgx is a module that alone brings pgx; middleware uses inbox and join
//	inbox                       what has been received, and a queue of it: an outbox of another name
//	join                        fan-in: groups of messages whose end is waited for
//	fanout                      from one stream to many destinations; uses join
//	stores                      many outboxes in one process; uses join
//	────────────────────────────────────────────────────────────────────────────────────────────────────────
//	publisher.go                publishes: into the queue, the log or both
//	subscriber.go               hands messages out. subscriber_claim claims; _window and _pacer say how many and when, _runs
//	                            keep streams in order; subscriber_settle settles; _leases renew, _duties do the rest; _log reads
//	outbox.go                   the queue as plain calls: outbox_enqueue, _claim, _settle, _work, _stream, _join, _admin, _janitor
//	log_cursor.go               the outbox read as a log: log_sequencer, log_dead. For watermill-sql: schema_adapter, offsets
//	migrate.go                  creates the tables; migrate_check looks at them
//	engine.go                   runs operations, engine_bracket their transactions
//	dialect.go                  SQLServer, Postgres, SQLite
//	message.go                  message_id, message_validate; errors, hooks, backoff, tx, wake
//	seam.go                     what the packages above use of all this, and users do not see: internal/seam
//	────────────────────────────────────────────────────────────────────────────────────────────────────────
//	internal/dialect            what the engine must know of a database
//	internal/seam               the doors from the root to the packages around it
//	schema                      all SQL, as files
//	internal/limits, …/quiet    what text every database can store, how long statements may take; one line a kind of trouble
//	internal/base               ids and what statements run on
//	internal/kept               connections that keep statements compiled
//	Watermill, google/uuid, the standard library
package outbox
