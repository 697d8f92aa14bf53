package outbox

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/incursa/watermill-outbox/internal/base"
)

// A Delivery is one attempt at a message, as its handler sees it: DeliveryFrom finds it in the message's context.
// It is safe for concurrent use.
type Delivery struct {
	claimed Claimed
	outbox  *Outbox
	place   *place // in the log, nil in the queue

	settledInTx atomic.Pointer[Outcome] // by SettleTx, if its transaction was committed
	lost        atomic.Bool             // the lease is somebody else's: nothing that happens here counts
	lapsed      atomic.Bool             // the lease ran out before there was an answer: the message is delivered again, whatever it is

	// Only used by the settler.
	handed  time.Time
	over    bool // it has an answer
	endsRun bool // nothing of its run comes after it

	timedOut bool // only used by who waits for the answer

	mu    sync.Mutex
	msg   *message.Message        // nil until it is handed out
	end   context.CancelCauseFunc // of its context
	err   error
	delay time.Duration // 0: the Backoff says
}

type deliveryKey struct{}

// DeliveryFrom returns the delivery whose message's context ctx is, or derives from.
func DeliveryFrom(ctx context.Context) (*Delivery, bool) {
	d, ok := ctx.Value(deliveryKey{}).(*Delivery)
	return d, ok
}

// in returns a context in which DeliveryFrom finds d, and all else as in ctx.
func (d *Delivery) in(ctx context.Context) context.Context {
	return context.WithValue(ctx, deliveryKey{}, d)
}

// MessageID names the message for its whole life.
func (d *Delivery) MessageID() MessageID { return d.claimed.ID }

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

// Group is the consumer group that the message is delivered to, empty in the queue.
func (d *Delivery) Group() string {
	if d.place == nil {
		return ""
	}
	return d.place.cursor.config.Group
}

// Position is the message's position in the log, 0 in the queue.
func (d *Delivery) Position() int64 {
	if d.place == nil {
		return 0
	}
	return d.place.position
}

// SettleTx settles the message in the handler's own transaction: it is done, or failed, if and only if what the handler
// wrote is committed; an ack then changes nothing. If the transaction cannot be committed, nack: the message then is
// delivered again. The outcome is Ack or Fail; to have the message delivered again, roll back and nack.
//
// Call it last. The lease of a row that a transaction has locked cannot be renewed: the message's context ends when
// LeaseDuration has passed before the commit.
//
// In a consumer group, Ack moves the group on in that transaction, and Fail also keeps the message among the group's dead
// letters. Until it ends it locks the group's place in the log.
//
// ErrLeaseLost means that another worker may have the message: roll back.
func (d *Delivery) SettleTx(ctx context.Context, tx *sql.Tx, outcome Outcome) error {
	if tx == nil {
		return base.ErrNilDB
	}
	if outcome != Ack && outcome != Fail {
		return badField("outcome", "%v cannot be settled in your transaction; roll it back and nack instead", outcome)
	}
	return d.settleTx(ctx, tx, Settlement{Receipt: d.claimed.Receipt, Outcome: outcome, Err: d.reason()})
}

// releaseTx gives the message back in the handler's own transaction: see seam.Delivering.
func (d *Delivery) releaseTx(ctx context.Context, tx *sql.Tx, delay time.Duration) error {
	if tx == nil {
		return base.ErrNilDB
	}
	return d.settleTx(ctx, tx, Settlement{Receipt: d.claimed.Receipt, Outcome: Release, Delay: delay})
}

func (d *Delivery) settleTx(ctx context.Context, tx *sql.Tx, settlement Settlement) error {
	if d.place != nil {
		return d.passTx(ctx, tx, settlement)
	}
	if err := settlement.validate(); err != nil {
		return err
	}
	// From now on the row may be found settled; whether the transaction is committed nobody here can know.
	before := d.settledInTx.Swap(&settlement.Outcome)
	refused, err := d.outbox.settle(ctx, tx, []Settlement{settlement})
	if err == nil && len(refused) > 0 {
		err = ErrLeaseLost
	}
	if err != nil {
		d.settledInTx.Store(before)
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

// reason is what SetErr has recorded.
func (d *Delivery) reason() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

// postpone gives the message back with the next nack, untried: see seam.Delivering.
func (d *Delivery) postpone(delay time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err, d.delay = errPostponed, delay
}

var errPostponed = Unavailable(errors.New("the handler has postponed the message"))

// ownDelay is how long a nacked message waits in place of the Backoff; 0 leaves it to the Backoff.
func (d *Delivery) ownDelay() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.delay
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

// open makes the Watermill message, with values from the subscription's context. It reports whether the message may still
// be handed out.
func (d *Delivery) open(subscription context.Context) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lost.Load() || d.lapsed.Load() {
		return false
	}
	ctx, end := context.WithCancelCause(context.WithoutCancel(subscription))
	d.msg, d.end = d.claimed.toWatermill(), end
	d.msg.SetContext(deliveryContext{ctx, d}) //nolint:contextcheck // it outlives the subscription
	return true
}

// lose notes that the lease is somebody else's and ends the handler's context. It reports whether a handler had the
// message and had not answered yet.
func (d *Delivery) lose() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lost.Store(true)
	return d.interrupt(ErrLeaseLost)
}

// lapse notes that the lease has run out and ends the handler's context, unless there is an answer, which may still be
// settled if nobody else has taken the message. It reports the same as lose.
func (d *Delivery) lapse() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.msg != nil && d.isAnswered() {
		return false
	}
	d.lapsed.Store(true)
	return d.interrupt(ErrLeaseLost)
}

// interrupt ends the handler's context. The caller holds the lock.
func (d *Delivery) interrupt(cause error) (handling bool) {
	if d.msg == nil {
		return false
	}
	d.end(cause)
	return !d.isAnswered()
}

// close ends the context of a message that is over.
func (d *Delivery) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.end != nil {
		d.end(nil)
	}
}

func (d *Delivery) isAnswered() bool {
	acked, nacked := d.answered()
	return acked || nacked
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
