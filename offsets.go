package outbox

import (
	"context"
	"time"
)

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
