package outbox

import (
	"context"
	"database/sql"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// A Delivery is one attempt at a message, as its handler sees it: DeliveryFrom finds it in the message's context.
// It is safe for concurrent use.
type Delivery struct {
	claimed Claimed
	outbox  *Outbox

	settledInTx atomic.Bool // by SettleTx: an ack then has nothing left to do
	lost        atomic.Bool // the lease is somebody else's: nothing that happens here counts

	mu     sync.Mutex
	msg    *message.Message // nil until it is handed out
	cancel context.CancelFunc
	err    error
}

type deliveryKey struct{}

// DeliveryFrom returns the delivery whose message's context ctx is, or derives from.
func DeliveryFrom(ctx context.Context) (*Delivery, bool) {
	d, ok := ctx.Value(deliveryKey{}).(*Delivery)
	return d, ok
}

// MessageID names the message for its whole life.
func (d *Delivery) MessageID() MessageID { return d.claimed.ID }

// WorkItemID is the key of the message's row.
func (d *Delivery) WorkItemID() WorkItemID { return d.claimed.Receipt.Seq }

// Receipt proves the claim to Settle.
func (d *Delivery) Receipt() Receipt { return d.claimed.Receipt }

// Topic is the message's topic.
func (d *Delivery) Topic() string { return d.claimed.Topic }

// StreamKey names the stream whose order the message belongs to, or is empty.
func (d *Delivery) StreamKey() string { return d.claimed.StreamKey }

// Attempt is 1 for the first delivery and grows with each that failed or whose worker died.
func (d *Delivery) Attempt() int { return d.claimed.RetryCount + 1 }

// DueAt is the due time that the message was published with, or zero.
func (d *Delivery) DueAt() time.Time { return d.claimed.DueAt }

// CreatedAt is when the message was enqueued, by the database's clock.
func (d *Delivery) CreatedAt() time.Time { return d.claimed.CreatedAt }

// SettleTx settles the message in the handler's own transaction: it is done, or failed, if and only if what the handler
// wrote is committed. The Subscriber then does not settle the message when the handler acks it. If the transaction
// cannot be committed, nack: the message then is delivered again. The outcome is Ack or Fail; to have the message
// delivered again, roll back and nack.
//
// ErrLeaseLost means that another worker may have the message: roll back.
func (d *Delivery) SettleTx(ctx context.Context, tx *sql.Tx, outcome Outcome) error {
	if tx == nil {
		return ErrNilDB
	}
	if outcome != Ack && outcome != Fail {
		return badField("outcome", "%v cannot be settled in your transaction; roll it back and nack instead", outcome)
	}
	return d.settleTx(ctx, tx, Settlement{Receipt: d.claimed.Receipt, Outcome: outcome, Err: d.Err()})
}

// ReleaseTx gives the message back in the handler's own transaction, to be delivered again after a delay: it was not its
// time yet, and no attempt is spent. Then ack, as after SettleTx.
func (d *Delivery) ReleaseTx(ctx context.Context, tx *sql.Tx, delay time.Duration) error {
	if tx == nil {
		return ErrNilDB
	}
	return d.settleTx(ctx, tx, Settlement{Receipt: d.claimed.Receipt, Outcome: Release, Delay: delay})
}

func (d *Delivery) settleTx(ctx context.Context, tx *sql.Tx, settlement Settlement) error {
	d.settledInTx.Store(true) // from now on the row may be locked until tx ends, and renewing stays away from it
	refused, err := d.outbox.Settle(ctx, tx, []Settlement{settlement})
	if err == nil && len(refused) > 0 {
		err = ErrLeaseLost
	}
	if err != nil {
		d.settledInTx.Store(false)
	}
	return err
}

// SetErr records why the handler does not succeed, before it nacks: the row's LastError. An error marked by Permanent
// fails the message at once. middleware.Outcome calls it.
func (d *Delivery) SetErr(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = err
}

// Err is what SetErr has recorded.
func (d *Delivery) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

// deliveryContext gives a message its own life: it ends when the message is settled, not when the router begins to
// close. It keeps the values of the context that was subscribed with.
type deliveryContext struct {
	context.Context //nolint:containedctx // it is a context
	delivery        *Delivery
}

// Value implements context.Context.
func (c deliveryContext) Value(key any) any {
	if key == (deliveryKey{}) {
		return c.delivery
	}
	return c.Context.Value(key)
}

// open makes the Watermill message, with values from the subscription's context.
func (d *Delivery) open(subscription context.Context) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(subscription))
	msg := d.claimed.toWatermill()
	msg.SetContext(deliveryContext{ctx, d}) //nolint:contextcheck // it outlives the subscription
	d.mu.Lock()
	defer d.mu.Unlock()
	d.msg, d.cancel = msg, cancel
}

// lose notes that the lease is somebody else's and ends the handler's context. It reports whether a handler had the
// message and had not answered yet.
func (d *Delivery) lose() bool {
	d.lost.Store(true)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.msg == nil {
		return false
	}
	d.cancel()
	acked, nacked := d.answered()
	return !acked && !nacked
}

// answered reports whether the handler has acked or nacked.
func (d *Delivery) answered() (acked, nacked bool) {
	select {
	case <-d.msg.Acked():
		return true, false
	case <-d.msg.Nacked():
		return false, true
	default:
		return false, false
	}
}
