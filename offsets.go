package outbox

import (
	"context"

	"github.com/incursa/watermill-outbox/internal/engine"
	"github.com/incursa/watermill-outbox/internal/field"
	"github.com/incursa/watermill-outbox/internal/seam"
)

// ForgetGroup removes a consumer group and its dead letters, these in batches. If it subscribes again, it begins with the
// oldest message that is left. After an error the group is still there, and some of its dead letters may be gone. It returns a
// *FieldError if group is not a valid name.
func (o *Outbox) ForgetGroup(ctx context.Context, group string) error {
	if err := field.Key("group", group); err != nil {
		return err
	}
	if group == "" {
		return field.Bad("group", "is empty; name the consumer group")
	}
	// There may be many. One statement would lock them all, and on SQL Server then their table.
	if _, err := o.changeDeadInBatches(ctx, opLogDeadDiscard, deadArg{Group: group}); err != nil {
		return err
	}
	_, err := o.batch(ctx, func(ctx context.Context, x Executor) (int, error) {
		_, err := engine.Call(ctx, o.engine, x, opLogForget, struct {
			Group string `json:"group"`
		}{group}, nil, scanCount)
		return 1, err
	})
	return err
}

func (l sqlServerLog) Begin(group, topic string) seam.Statement {
	return l.procedure("Outbox_Log_Begin", group, topic)
}

func (l sqlServerLog) Advance(group, topic string, position int64) seam.Statement {
	return l.procedure("Outbox_Log_Advance", group, topic, position)
}
