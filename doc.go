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
// A message is Ready once it is committed; claims skip it before its due time and during a backoff. A claim gives it to one
// worker, under a lease and with its own token. The Subscriber renews the lease while the handler runs. A worker that has
// lost a lease cannot change the message.
//
// # Guarantees
//
//   - A message is published if, and only if, its transaction commits.
//   - A committed message is delivered at least once, even if workers are killed. It may be delivered twice: after a
//     crash, or after a lease was lost. [Delivery.SettleTx] makes effects in the same database happen once.
//   - No two workers hold a message at once.
//   - A failing message does not hold up others, and messages have no order, except those with the same topic and stream key
//     ([Message].StreamKey): they are delivered in order, one at a time, each after those before it have ended.
//   - A message that keeps failing ends as Failed, with its last error, and stays until it is requeued or purged.
//   - Payload, UUID and metadata are delivered unchanged.
//   - The database's clock decides on leases, due times and backoff; a worker's clock decides only when its own
//     handlers stop, before their leases expire.
//   - Only [Migrate] creates anything. Payloads are never logged.
//
// # Use
//
// [Migrate] the database. Publish through a [Publisher] in the context of [InTx], or of [WithTx] and your own transaction.
// Give a [Subscriber] to any Watermill router, and add middleware.Outcome first, so that a handler's error reaches the
// row. An [Outbox] offers the same queue as plain calls, for tools and for your own workers.
//
// # Import graph
//
// Imports point one way: each floor uses only those below it.
//
//	cmd/outbox                  the command line, a module
//	examples/…, internal/…      programs and tests, in modules of their own where they import drivers
//	forwarder/amqp, …/kafka     publishers for the forwarder, each a module; only they depend on broker clients
//	forwarder                   from the outbox to any publisher
//	observe/…                   metrics, traces and health checks; prometheus and otel are modules and alone depend on those
//	middleware, wake/pgx        around the outbox; only wake/pgx, a module, depends on pgx; middleware uses inbox and join
//	watermillsql                watermill-sql over the log, a module: only it depends on watermill-sql
//	inbox                       messages that were received, each once, and a queue for them: an outbox under another name
//	join                        fan-in: waits until a group of messages has ended
//	fanout                      from one stream to many destinations; uses join
//	stores                      many outboxes in one process; uses join
//	eventstore                  messages of the log with versions in streams
//	admin                       searches messages, acts on dead letters, measures
//	────────────────────────────────────────────────────────────────────────────────────────────────────────
//	publisher.go                publishes: into the queue, the log or both; publisher_scope and _batch share commits
//	subscriber.go               delivers messages. subscriber_claim claims, _delivery hands out, _runs keeps streams in order;
//	                            subscriber_settle settles; _leases renews, _duties does the rest; _log reads
//	outbox.go                   the queue as plain calls: outbox_enqueue, _claim, _settle, _work, _stream, _join, _admin, _janitor
//	log_cursor.go               the outbox read as a log: log_sequencer, _dead, _group, _event; offsets and schema_adapter are for watermillsql
//	migrate.go                  creates the tables, checks them and prints the script, by internal/install
//	engine.go                   the operations, which internal/engine runs
//	dialect.go                  SQLServer, Postgres, SQLite
//	message.go                  message_id, message_validate; errors, hooks, backoff, tx, wake
//	seam.go                     what the packages above need and users do not see: internal/seam
//	────────────────────────────────────────────────────────────────────────────────────────────────────────
//	internal/install            creates the tables and procedures, and says what is missing
//	internal/engine             runs operations, each in its own transaction or the caller's
//	internal/dialect            what the engine needs to know about a database
//	internal/seam               how the packages around the root reach its internals
//	schema                      all SQL, as files
//	internal/field              defaults of config fields, and errors for bad ones
//	internal/flow               when and how much: pauses, pacer, window, leases
//	internal/limits, …/quiet    the text that every database can store, time limits of statements; one log line for repeated trouble
//	internal/base               ids, errors, and what statements run on
//	internal/kept               SQLite connections that keep statements compiled
//	Watermill, google/uuid, the standard library
package outbox
