package outbox

import (
	"context"
	"time"

	"github.com/incursa/watermill-outbox/internal/field"
	"github.com/incursa/watermill-outbox/internal/seam"
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

func (l sqlServerLog) Begin(group, topic string) seam.Statement {
	return l.procedure("Outbox_Log_Begin", group, topic)
}

func (l sqlServerLog) Advance(group, topic string, position int64) seam.Statement {
	return l.procedure("Outbox_Log_Advance", group, topic, position)
}
