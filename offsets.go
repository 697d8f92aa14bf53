package outbox

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	wmsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
)

// The outbox read as a log: consumer groups, each with its position in each topic. Nothing here reads by the number that a
// message got when it was inserted, which commits out of order; see Sequencer.

// A logged message is one with its position.
type logged struct {
	Message
	position  int64
	malformed error
}

func (l *logged) scan(rows *sql.Rows) error {
	var columns messageColumns
	var position WorkItemID
	var retryCount int
	if err := rows.Scan(columns.destinations(&l.Message, &position, &retryCount)...); err != nil {
		return err
	}
	l.position = int64(position)
	l.malformed = columns.fill(&l.Message)
	return nil
}

// readLog reads messages of a topic after a position, in order.
func (o *Outbox) readLog(ctx context.Context, topic string, after int64, limit int) ([]logged, error) {
	messages, err := call(ctx, o.engine, o.db, opLogRead, struct {
		Topic string `json:"topic"`
		After int64  `json:"after"`
		Limit int    `json:"limit"`
	}{topic, after, limit}, nil, func(rows *sql.Rows, l *logged) error { return l.scan(rows) })
	slices.SortFunc(messages, func(a, b logged) int { return cmp.Compare(a.position, b.position) })
	return messages, err
}

// errNotReader says that another reads the topic for the group.
var errNotReader = errors.New("another consumer reads this topic for the group")

// leaseLog makes owner the one reader of a topic for a group, or keeps it so, moves the group on to position, and returns
// the group's position. A lease of 0 gives it back.
func (o *Outbox) leaseLog(ctx context.Context, group, topic string, owner OwnerToken, position int64, lease time.Duration) (int64, error) {
	positions, err := call(ctx, o.engine, o.db, opLogLease, struct {
		Group    string     `json:"group"`
		Topic    string     `json:"topic"`
		Owner    OwnerToken `json:"owner"`
		Position int64      `json:"position"`
		LeaseMS  int64      `json:"lease_ms"`
	}{group, topic, owner, position, lease.Milliseconds()}, nil, func(rows *sql.Rows, p *int64) error { return rows.Scan(p) })
	if err != nil {
		return 0, err
	}
	if len(positions) == 0 {
		return 0, errNotReader
	}
	return positions[0], nil
}

// PurgeLog deletes what is older than olderThan from the log, in small batches, and the messages that are for the log
// alone; it returns how many. What a consumer group has not passed yet is never deleted: ForgetGroup removes one that is
// not used any more. When ctx ends it stops with what it has deleted so far and ctx's error.
func (o *Outbox) PurgeLog(ctx context.Context, olderThan time.Duration) (int, error) {
	if olderThan < 0 {
		return 0, badField("olderThan", "is negative")
	}
	return o.inBatches(ctx, opLogPurge, struct {
		OlderThanMS int64 `json:"older_than_ms"`
		Limit       int   `json:"limit"`
	}{olderThan.Milliseconds(), maxBatch})
}

// ForgetGroup removes a consumer group. If it subscribes again, it begins with the oldest message that is left.
func (o *Outbox) ForgetGroup(ctx context.Context, group string) error {
	_, err := call(ctx, o.engine, o.db, opLogForget, struct {
		Group string `json:"group"`
	}{group}, nil, scanCount)
	return err
}

// SQLServerOffsets keeps the positions of watermill-sql's consumer groups on SQL Server, together with SQLServerSchema.
type SQLServerOffsets struct{ names names }

var _ wmsql.OffsetsAdapter = (*SQLServerOffsets)(nil)

// NewSQLServerOffsets returns the adapter for an outbox; of the configuration, Dialect may be left out.
func NewSQLServerOffsets(config MigrateConfig) (*SQLServerOffsets, error) {
	n, err := newNames(SQLServer{}, config.Schema, config.Table)
	if err != nil {
		return nil, err
	}
	return &SQLServerOffsets{n}, nil
}

// AckMessageQuery implements OffsetsAdapter.
func (o *SQLServerOffsets) AckMessageQuery(topic string, row wmsql.Row, consumerGroup string) wmsql.Query {
	return wmsql.Query{Query: o.names.qualified("Outbox_Log_Advance"), Args: []any{consumerGroup, topic, row.Offset}}
}

// ConsumedMessageQuery implements OffsetsAdapter: there is nothing to do.
func (o *SQLServerOffsets) ConsumedMessageQuery(string, wmsql.Row, string, []byte) wmsql.Query {
	return wmsql.Query{}
}

// NextOffsetQuery implements OffsetsAdapter. SQLServerSchema does not need it: its procedure reads the position itself.
func (o *SQLServerOffsets) NextOffsetQuery(string, string) wmsql.Query { return wmsql.Query{} }

// SchemaInitializingQueries implements OffsetsAdapter: Migrate has made everything.
func (o *SQLServerOffsets) SchemaInitializingQueries(string) []wmsql.Query { return nil }

// BeforeSubscribingQueries implements OffsetsAdapter: a group exists from its first subscription on.
func (o *SQLServerOffsets) BeforeSubscribingQueries(topic, consumerGroup string) []wmsql.Query {
	return []wmsql.Query{{Query: o.names.qualified("Outbox_Log_Begin"), Args: []any{consumerGroup, topic}}}
}
