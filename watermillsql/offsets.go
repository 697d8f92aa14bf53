package watermillsql

import (
	wmsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"

	"github.com/incursa/watermill-outbox/internal/seam"
)

type offsetsAdapter struct{ log seam.Log }

// NewOffsetsAdapter returns the OffsetsAdapter of watermill-sql's SubscriberConfig, which keeps the positions of consumer
// groups. It returns an *outbox.FieldError that names a bad field.
func NewOffsetsAdapter(config Config) (wmsql.OffsetsAdapter, error) {
	log, err := config.log()
	if err != nil {
		return nil, err
	}
	return offsetsAdapter{log}, nil
}

// AckMessageQuery implements OffsetsAdapter.
func (a offsetsAdapter) AckMessageQuery(topic string, row wmsql.Row, consumerGroup string) wmsql.Query {
	return query(a.log.Advance(consumerGroup, topic, row.Offset))
}

// ConsumedMessageQuery implements OffsetsAdapter: there is nothing to do.
func (a offsetsAdapter) ConsumedMessageQuery(string, wmsql.Row, string, []byte) wmsql.Query {
	return wmsql.Query{}
}

// NextOffsetQuery implements OffsetsAdapter: SelectQuery reads the position itself.
func (a offsetsAdapter) NextOffsetQuery(string, string) wmsql.Query { return wmsql.Query{} }

// SchemaInitializingQueries implements OffsetsAdapter: outbox.Migrate has created everything.
func (a offsetsAdapter) SchemaInitializingQueries(string) []wmsql.Query { return nil }

// BeforeSubscribingQueries implements OffsetsAdapter: a group exists from its first subscription on.
func (a offsetsAdapter) BeforeSubscribingQueries(topic, consumerGroup string) []wmsql.Query {
	return []wmsql.Query{query(a.log.Begin(consumerGroup, topic))}
}
