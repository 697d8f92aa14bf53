package outbox

import (
	"context"
	"time"

	wmsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
)

// PurgeLog deletes what is older than olderThan from the log, in small batches, and the messages that are for the log
// alone; it returns how many. What a consumer group has not passed yet is never deleted: ForgetGroup removes one that is
// not used any more. When ctx ends it stops with what it has deleted so far and ctx's error.
func (o *Outbox) PurgeLog(ctx context.Context, olderThan time.Duration) (int, error) {
	if olderThan < 0 {
		return 0, badField("olderThan", "is negative")
	}
	return o.purge(ctx, opLogPurge, purgeArg{OlderThanMS: olderThan.Milliseconds()}, 0)
}

// ForgetGroup removes a consumer group. If it subscribes again, it begins with the oldest message that is left.
func (o *Outbox) ForgetGroup(ctx context.Context, group string) error {
	if err := validateKey("group", group); err != nil {
		return err
	}
	_, err := call(ctx, o.engine, o.db, opLogForget, struct {
		Group string `json:"group"`
	}{group}, nil, scanCount)
	return err
}

// sqlServerOffsets is watermill-sql's offsets adapter over the outbox table.
type sqlServerOffsets struct{ names names }

var _ wmsql.OffsetsAdapter = (*sqlServerOffsets)(nil)

// NewSQLServerOffsets keeps the positions of watermill-sql's consumer groups on SQL Server, together with
// NewSQLServerSchema; of the configuration, Dialect may be left out.
func NewSQLServerOffsets(config MigrateConfig) (wmsql.OffsetsAdapter, error) {
	n, err := newNames(SQLServer{}, config.Schema, config.Table)
	if err != nil {
		return nil, err
	}
	return &sqlServerOffsets{n}, nil
}

// AckMessageQuery implements OffsetsAdapter.
func (o *sqlServerOffsets) AckMessageQuery(topic string, row wmsql.Row, consumerGroup string) wmsql.Query {
	return wmsql.Query{Query: o.names.qualified("Outbox_Log_Advance"), Args: []any{consumerGroup, topic, row.Offset}}
}

// ConsumedMessageQuery implements OffsetsAdapter: there is nothing to do.
func (o *sqlServerOffsets) ConsumedMessageQuery(string, wmsql.Row, string, []byte) wmsql.Query {
	return wmsql.Query{}
}

// NextOffsetQuery implements OffsetsAdapter. sqlServerSchema does not need it: its procedure reads the position itself.
func (o *sqlServerOffsets) NextOffsetQuery(string, string) wmsql.Query { return wmsql.Query{} }

// SchemaInitializingQueries implements OffsetsAdapter: Migrate has made everything.
func (o *sqlServerOffsets) SchemaInitializingQueries(string) []wmsql.Query { return nil }

// BeforeSubscribingQueries implements OffsetsAdapter: a group exists from its first subscription on.
func (o *sqlServerOffsets) BeforeSubscribingQueries(topic, consumerGroup string) []wmsql.Query {
	return []wmsql.Query{{Query: o.names.qualified("Outbox_Log_Begin"), Args: []any{consumerGroup, topic}}}
}
