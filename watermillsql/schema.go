package watermillsql

import (
	"database/sql"

	wmsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	_ "github.com/incursa/watermill-outbox" // sets what internal/seam leads to
	"github.com/incursa/watermill-outbox/internal/seam"
)

type schemaAdapter struct {
	log       seam.Log
	batchSize int
}

// NewSchemaAdapter returns the SchemaAdapter of watermill-sql's PublisherConfig and SubscriberConfig. It returns an
// *outbox.FieldError that names a bad field.
func NewSchemaAdapter(config Config) (wmsql.SchemaAdapter, error) {
	log, err := config.log()
	if err != nil {
		return nil, err
	}
	return schemaAdapter{log, config.BatchSize}, nil
}

// InsertQuery implements SchemaAdapter.
func (a schemaAdapter) InsertQuery(topic string, msgs message.Messages) (wmsql.Query, error) {
	insert, err := a.log.Insert(topic, msgs)
	return query(insert), err
}

// SelectQuery implements SchemaAdapter. It needs nothing of the offsets adapter: the procedure reads the position itself.
func (a schemaAdapter) SelectQuery(topic, consumerGroup string, _ wmsql.OffsetsAdapter) wmsql.Query {
	return query(a.log.Next(consumerGroup, topic, a.batchSize))
}

// UnmarshalMessage implements SchemaAdapter.
func (a schemaAdapter) UnmarshalMessage(row wmsql.Scanner) (wmsql.Row, error) {
	position, headers, msg, err := a.log.Scan(row.Scan)
	if err != nil {
		return wmsql.Row{}, err
	}
	return wmsql.Row{Offset: position, UUID: []byte(msg.UUID), Payload: msg.Payload, Metadata: []byte(headers), Msg: msg}, nil
}

// SchemaInitializingQueries implements SchemaAdapter: outbox.Migrate has created everything.
func (a schemaAdapter) SchemaInitializingQueries(string) []wmsql.Query { return nil }

// SubscribeIsolationLevel implements SchemaAdapter.
func (a schemaAdapter) SubscribeIsolationLevel() sql.IsolationLevel { return sql.LevelReadCommitted }

func query(s seam.Statement) wmsql.Query { return wmsql.Query{Query: s.Text, Args: s.Args} }
