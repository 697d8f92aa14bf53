package outbox

import (
	"context"
	"time"

	wmsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"

	"github.com/incursa/watermill-outbox/internal/field"
)

// PurgeLog deletes entries older than olderThan from the log, in small batches, together with messages that are only in the
// log, and returns how many. It never deletes what a consumer group has not passed yet: ForgetGroup removes a group that is
// no longer used. When ctx ends, it returns the number deleted so far and ctx's error. It returns a *FieldError if olderThan
// is negative.
func (o *Outbox) PurgeLog(ctx context.Context, olderThan time.Duration) (int, error) {
	if olderThan < 0 {
		return 0, field.Bad("olderThan", "is negative")
	}
	return o.purge(ctx, opLogPurge, purgeArg{OlderThanMS: olderThan.Milliseconds()}, 0)
}

// ForgetGroup removes a consumer group. If it subscribes again, it begins with the oldest message that is left. It returns a
// *FieldError if group is not a valid name.
func (o *Outbox) ForgetGroup(ctx context.Context, group string) error {
	if err := field.Key("group", group); err != nil {
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

// NewSQLServerOffsets keeps the positions of watermill-sql's consumer groups on SQL Server. Use it with NewSQLServerSchema.
// MigrateConfig.Dialect may be left out. It returns a *FieldError that names a bad field.
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

// SchemaInitializingQueries implements OffsetsAdapter: Migrate has created everything.
func (o *sqlServerOffsets) SchemaInitializingQueries(string) []wmsql.Query { return nil }

// BeforeSubscribingQueries implements OffsetsAdapter: a group exists from its first subscription on.
func (o *sqlServerOffsets) BeforeSubscribingQueries(topic, consumerGroup string) []wmsql.Query {
	return []wmsql.Query{{Query: o.names.qualified("Outbox_Log_Begin"), Args: []any{consumerGroup, topic}}}
}
