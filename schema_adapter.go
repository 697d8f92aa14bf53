package outbox

import (
	"database/sql"

	wmsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/incursa/watermill-outbox/internal/field"
)

// sqlServerSchema is watermill-sql's schema adapter over the outbox table.
type sqlServerSchema struct {
	outbox    *Outbox
	batchSize int
}

var _ wmsql.SchemaAdapter = (*sqlServerSchema)(nil)

// NewSQLServerSchema lets the Publisher and Subscriber of watermill-sql (v3) run on SQL Server over the outbox table: they
// publish into the log and read it by position. Use it with NewSQLServerOffsets and a running Sequencer. Create the tables
// with Migrate: topics need no initialization. MigrateConfig.Dialect may be left out. batchSize is the most messages that a
// subscriber reads at once, 1 to 1,000; 0 means 100. It returns a *FieldError that names a bad field.
//
// It is for applications that already use watermill-sql. Like watermill-sql, it holds a transaction open while messages are
// handled, one at a time; a Subscriber with a ConsumerGroup does not. Each subscription therefore holds a connection: give
// the subscriptions their own pool, larger than their number, and the Publisher and the Sequencer another.
func NewSQLServerSchema(config MigrateConfig, batchSize int) (wmsql.SchemaAdapter, error) {
	field.Default(&batchSize, 100)
	if batchSize < 1 || batchSize > maxBatch {
		return nil, field.Bad("batchSize", "%d is not between 1 and %d", batchSize, maxBatch)
	}
	o, err := newOutbox(nil, Config{Dialect: SQLServer{}, Schema: config.Schema, Table: config.Table, Log: LogOnly}, nil)
	if err != nil {
		return nil, err
	}
	return &sqlServerSchema{outbox: o, batchSize: batchSize}, nil
}

// InsertQuery implements SchemaAdapter: one call of a procedure for any number of messages.
func (s *sqlServerSchema) InsertQuery(topic string, msgs message.Messages) (wmsql.Query, error) {
	messages := make([]Message, len(msgs))
	for i, msg := range msgs {
		var err error
		if messages[i], err = fromWatermill(topic, msg); err != nil {
			return wmsql.Query{}, err
		}
	}
	rows, _, err := s.outbox.prepare(messages)
	if err != nil {
		return wmsql.Query{}, err
	}
	payloads := joinPayloads(messages, rows)
	arg, err := encodeArgument(rows)
	if err != nil {
		return wmsql.Query{}, err
	}
	return wmsql.Query{Query: s.procedure("Outbox_Log_Enqueue"), Args: []any{arg, payloads}}, nil
}

// SelectQuery implements SchemaAdapter. The offsets must be those of NewSQLServerOffsets for the same outbox.
func (s *sqlServerSchema) SelectQuery(topic, consumerGroup string, _ wmsql.OffsetsAdapter) wmsql.Query {
	return wmsql.Query{Query: s.procedure("Outbox_Log_Next"), Args: []any{consumerGroup, topic, s.batchSize}}
}

// UnmarshalMessage implements SchemaAdapter.
func (s *sqlServerSchema) UnmarshalMessage(row wmsql.Scanner) (wmsql.Row, error) {
	var r wmsql.Row
	var uuid string
	var headers sql.NullString
	if err := row.Scan(&r.Offset, &uuid, &r.Payload, &headers); err != nil {
		return wmsql.Row{}, err
	}
	metadata, err := decodeHeaders(headers.String)
	if err != nil {
		return wmsql.Row{}, err
	}
	r.UUID, r.Metadata = []byte(uuid), []byte(headers.String)
	r.Msg = message.NewMessage(uuid, r.Payload)
	if metadata != nil {
		r.Msg.Metadata = metadata
	}
	return r, nil
}

// SchemaInitializingQueries implements SchemaAdapter: Migrate has created everything.
func (s *sqlServerSchema) SchemaInitializingQueries(string) []wmsql.Query { return nil }

// SubscribeIsolationLevel implements SchemaAdapter.
func (s *sqlServerSchema) SubscribeIsolationLevel() sql.IsolationLevel { return sql.LevelReadCommitted }

func (s *sqlServerSchema) procedure(name string) string { return s.outbox.engine.names.qualified(name) }
