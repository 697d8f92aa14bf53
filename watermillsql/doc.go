// Package watermillsql lets the Publisher and Subscriber of watermill-sql (v3) run on SQL Server over the outbox table: they
// publish into the log, and read it by position.
//
// It is for applications that already use watermill-sql; others use an outbox.Publisher, and an outbox.Subscriber with a
// ConsumerGroup. Create the tables with outbox.Migrate: topics need no initialization. Run an outbox.Sequencer, and use both
// adapters together:
//
//	schema, err := watermillsql.NewSchemaAdapter(watermillsql.Config{})
//	offsets, err := watermillsql.NewOffsetsAdapter(watermillsql.Config{})
//
// Like watermill-sql everywhere, this holds a transaction open while messages are handled, one at a time. Each subscription
// therefore holds a connection: give the subscriptions a pool of their own, larger than their number, and the Publisher and
// the Sequencer another.
package watermillsql
