package outbox

import (
	"context"
	"database/sql"

	"github.com/incursa/watermill-outbox/internal/engine"
	"github.com/incursa/watermill-outbox/internal/field"
)

// A place is the position in the log of a delivery to a consumer group.
type place struct {
	cursor   *cursor
	from     int64 // the group's position
	position int64
	again    bool // the message is a requeued dead letter, which the group has already passed
}

// passTx is SettleTx for a consumer group: the group moves on in the handler's transaction.
func (d *Delivery) passTx(ctx context.Context, tx *sql.Tx, settlement Settlement) error {
	if settlement.Outcome == Release {
		return field.Bad("ReleaseTx", "is not for a consumer group, which goes in order; roll the transaction back and nack instead")
	}
	before := d.settledInTx.Swap(&settlement.Outcome)
	err := d.outbox.inTx(ctx, tx, func(ctx context.Context, x Executor) error {
		if err := d.place.pass(ctx, x); err != nil {
			return err
		}
		switch {
		case settlement.Outcome == Fail:
			return d.place.bury(ctx, x, d.MessageID(), d.Attempt(), settlement.Err)
		case d.place.again:
			_, err := d.place.discard(ctx, x)
			return err
		default:
			return nil
		}
	})
	if err != nil {
		d.settledInTx.Store(before)
	}
	return err
}

// pass moves the group on, if this reader still has it; the group has already passed a requeued message.
func (p *place) pass(ctx context.Context, x Executor) error {
	to := p.position
	if p.again {
		to = 0
	}
	return p.cursor.Advance(ctx, x, p.from, to)
}

// bury adds the message to the group's dead letters.
func (p *place) bury(ctx context.Context, x Executor, id MessageID, attempts int, reason error) error {
	_, err := engine.Call[struct{}](ctx, p.cursor.outbox.engine, x, opLogDeadAdd, struct {
		Group    string    `json:"group"`
		Topic    string    `json:"topic"`
		Position int64     `json:"position"`
		Message  MessageID `json:"message"`
		Attempts int       `json:"attempts"`
		Reason   string    `json:"reason"`
	}{p.cursor.config.Group, p.cursor.config.Topic, p.position, id, attempts, storableError(reason)}, nil, nil)
	return err
}

// discard removes the message from the group's dead letters.
func (p *place) discard(ctx context.Context, x Executor) (int, error) {
	n, _, err := p.cursor.outbox.changeDead(ctx, x, opLogDeadDiscard, deadArg{
		Group: p.cursor.config.Group, Topic: p.cursor.config.Topic, Positions: []int64{p.position}, Limit: 1})
	return n, err
}
