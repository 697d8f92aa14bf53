package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/incursa/watermill-outbox/internal/engine"
	"github.com/incursa/watermill-outbox/internal/field"
	"github.com/incursa/watermill-outbox/internal/seam"
)

// ForgetGroup removes a consumer group and its dead letters, these in batches. If it subscribes again, it begins with the
// oldest message that is left. After an error the group is still there, and some of its dead letters may be gone. It is no error
// if there is no such group. It returns a *FieldError if group is not a valid name.
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
		topics, err := engine.Call(ctx, o.engine, x, opLogForget, struct {
			Group string `json:"group"`
		}{group}, nil, scanCount)
		if len(topics) == 0 || topics[0] == 0 {
			return 0, err
		}
		return 1, err
	})
	return err
}

// errSkipped is the reason of a dead letter from SkipGroupHead.
var errSkipped = errors.New("skipped by an operator: the message held up its consumer group")

// SkipGroupHead moves a consumer group past the message of a topic that it has tried and not passed, such as one that blocks it
// for good (SubscriberConfig.OnGroupFailure). It returns the message, which is now a dead letter of the group. The group's
// reader goes on from there when it next renews its lease; what it answers to the message after this changes nothing. It returns
// an error that wraps ErrNotBlocked, or a *FieldError for a bad group or topic.
func (o *Outbox) SkipGroupHead(ctx context.Context, group, topic string) (skipped LogMessage, err error) {
	if topic == "" {
		return LogMessage{}, field.Bad("topic", "is empty; name the topic that the group subscribes to")
	}
	c, err := o.openCursor(seam.CursorConfig{Group: group, Topic: topic})
	if err != nil {
		return LogMessage{}, err
	}
	_, err = o.batch(ctx, func(ctx context.Context, x Executor) (int, error) {
		return 1, o.inTx(ctx, x, func(ctx context.Context, x Executor) (err error) {
			skipped, err = c.skip(ctx, x)
			return err
		})
	})
	return skipped, err
}

// skip moves the group past the message that it has tried, and buries that. It is part of a transaction.
func (c *cursor) skip(ctx context.Context, x Executor) (LogMessage, error) {
	type head struct {
		position int64
		attempts int
	}
	heads, err := engine.Call(ctx, c.outbox.engine, x, opLogSkip, struct {
		Group string `json:"group"`
		Topic string `json:"topic"`
	}{c.config.Group, c.config.Topic}, nil, func(rows *sql.Rows, h *head) error { return rows.Scan(&h.position, &h.attempts) })
	if err != nil {
		return LogMessage{}, err
	}
	if len(heads) == 0 {
		return LogMessage{}, fmt.Errorf("%w: consumer group %q has tried no message of topic %q that it has not passed", ErrNotBlocked, c.config.Group, c.config.Topic)
	}
	position := heads[0].position
	messages, err := c.readOn(ctx, x, position-1, 1)
	if err != nil {
		return LogMessage{}, err
	}
	if len(messages) == 0 || messages[0].Position != position {
		return LogMessage{}, fmt.Errorf("outbox: the message at position %d of topic %q is not in the log", position, c.config.Topic)
	}
	p := place{cursor: c, position: position, message: messages[0].ID}
	return messages[0], p.bury(ctx, x, heads[0].attempts, errSkipped)
}
