package outbox

import (
	"context"

	"github.com/incursa/watermill-outbox/internal/engine"
	"github.com/incursa/watermill-outbox/internal/field"
	"github.com/incursa/watermill-outbox/internal/seam"
)

// ForgetGroup removes a consumer group with its dead letters, those in batches. After an error some of them may be gone: call
// it again. If the group subscribes again, it begins with the oldest message that is left. It returns a *FieldError if group is
// not a valid name.
func (o *Outbox) ForgetGroup(ctx context.Context, group string) error {
	if err := field.Key("group", group); err != nil {
		return err
	}
	// Its dead letters go in batches first: one statement that deleted thousands could lock the table against everybody.
	if _, err := o.changeDeadInBatches(ctx, opLogDeadDiscard, deadArg{Group: group}); err != nil {
		return err
	}
	_, err := engine.Call(ctx, o.engine, o.db, opLogForget, struct {
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
