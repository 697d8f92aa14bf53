package outbox

import (
	"context"
	"database/sql"
	"sync/atomic"

	"github.com/incursa/watermill-outbox/internal/engine"
	"github.com/incursa/watermill-outbox/internal/field"
)

// A place is the position in the log of a delivery to a consumer group.
type place struct {
	cursor   *cursor
	from     int64 // the group's position
	position int64
	message  MessageID
	again    bool // the message is a requeued dead letter, which the group has already passed

	tried atomic.Bool // by SettleTx, whose transaction may have been committed, or has met another attempt's that was
}

// passTx is SettleTx for a consumer group: the group moves on in the handler's transaction. The database takes that once for each
// message, in case an earlier attempt's transaction was still open when the message was handed out again.
func (d *Delivery) passTx(ctx context.Context, tx *sql.Tx, settlement Settlement) error {
	if settlement.Outcome == Release {
		return field.Bad("ReleaseTx", "is not for a consumer group, which goes in order; roll the transaction back and nack instead")
	}
	if d.lost.Load() {
		return ErrLeaseLost
	}
	d.place.tried.Store(true)
	before := d.settledInTx.Swap(&settlement.Outcome)
	err := d.outbox.inTx(ctx, tx, func(ctx context.Context, x Executor) error {
		if settlement.Outcome == Fail {
			return d.place.giveUp(ctx, x, d.Attempt(), settlement.Err)
		}
		return d.place.pass(ctx, x)
	})
	if err != nil {
		d.settledInTx.Store(before)
	}
	return err
}

// pass moves the group past the message, or removes the message from its dead letters. It returns ErrLeaseLost if this reader no
// longer has the group, or if that has been done.
func (p *place) pass(ctx context.Context, x Executor) error {
	arg := leaseArg{From: p.from, LeaseMS: p.cursor.config.Lease.Milliseconds()}
	if !p.again {
		arg.Position, arg.Message, arg.Once = p.position, p.message.String(), true
	}
	if _, err := p.cursor.move(ctx, x, arg); err != nil || !p.again {
		return err
	}
	n, err := p.discard(ctx, x)
	if err == nil && n == 0 {
		return ErrLeaseLost
	}
	return err
}

// giveUp moves the group past the message, which becomes a dead letter. It is part of a transaction.
func (p *place) giveUp(ctx context.Context, x Executor, attempts int, reason error) error {
	if err := p.pass(ctx, x); err != nil {
		return err
	}
	return p.bury(ctx, x, attempts, reason)
}

// bury adds the message to the group's dead letters.
func (p *place) bury(ctx context.Context, x Executor, attempts int, reason error) error {
	_, err := engine.Call[struct{}](ctx, p.cursor.outbox.engine, x, opLogDeadAdd, struct {
		Group    string    `json:"group"`
		Topic    string    `json:"topic"`
		Position int64     `json:"position"`
		Message  MessageID `json:"message"`
		Attempts int       `json:"attempts"`
		Reason   string    `json:"reason"`
	}{p.cursor.config.Group, p.cursor.config.Topic, p.position, p.message, attempts, storableError(reason)}, nil, nil)
	return err
}

// discard removes the message from the group's requeued dead letters.
func (p *place) discard(ctx context.Context, x Executor) (int, error) {
	n, _, err := p.cursor.outbox.changeDead(ctx, x, opLogDeadDiscard, deadArg{
		Group: p.cursor.config.Group, Topic: p.cursor.config.Topic, Positions: []int64{p.position}, Requeued: true, Limit: 1})
	return n, err
}
