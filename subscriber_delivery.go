package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/field"
	"github.com/incursa/watermill-outbox/internal/flow"
)

// A Delivery is one attempt at a message, as its handler sees it: DeliveryFrom finds it in the message's context.
// It is safe for concurrent use.
type Delivery struct {
	// Set before it is handed out.
	claimed  *Claimed
	outbox   *Outbox
	place    *place    // in the log, nil in the queue
	deadline time.Time // when the message expires; zero if it does not
	ahead    *answer   // of the message before it in its run; nil if there is none, or its handler's transaction settled it

	// Of the lease. Whoever keeps it sets them, and nobody resets them.
	lost   atomic.Bool // another worker may have it: nothing that happens here counts
	lapsed atomic.Bool // it expired before the answer: the message is delivered again, whatever the answer is

	// Of the settlement.
	settledInTx atomic.Pointer[Outcome] // by SettleTx, if its transaction was committed
	settled     atomic.Bool             // the database has the answer, or gets none from here

	// Only used by the goroutine that waits for the answer.
	handed   time.Time // set when a handler has it, before that goroutine knows it
	timedOut bool      // its context has ended after MaxHandlerTime
	over     bool      // it has an answer

	stages deliveryStages

	mu    sync.Mutex
	msg   *message.Message        // nil until it is handed out
	end   context.CancelCauseFunc // of its context
	ended <-chan struct{}         // closed by end: whoever has the message may set another context
	err   error
	delay time.Duration // 0: the Backoff says
}

func (d *Delivery) owner() OwnerToken { return d.claimed.Receipt.Owner }

// weight is what the message counts for in the window.
func (d *Delivery) weight() (topic string, bytes int64) { return d.Topic(), d.claimed.size }

type deliveryKey struct{}

// DeliveryFrom returns the delivery of a message, given the message's context or one derived from it.
func DeliveryFrom(ctx context.Context) (*Delivery, bool) {
	d, ok := ctx.Value(deliveryKey{}).(*Delivery)
	return d, ok
}

// in returns ctx with d, for DeliveryFrom.
func (d *Delivery) in(ctx context.Context) context.Context {
	return context.WithValue(ctx, deliveryKey{}, d)
}

// MessageID returns the id that names the message for its whole life.
func (d *Delivery) MessageID() MessageID { return d.claimed.ID }

// Topic returns the message's topic.
func (d *Delivery) Topic() string { return d.claimed.Topic }

// StreamKey returns the name of the message's stream, or an empty string.
func (d *Delivery) StreamKey() string { return d.claimed.StreamKey }

// Attempt returns 1 for the first delivery. It grows with each delivery that failed or whose worker died.
func (d *Delivery) Attempt() int { return d.claimed.RetryCount + 1 }

// DueAt returns the due time that the message was published with, or zero.
func (d *Delivery) DueAt() time.Time { return d.claimed.DueAt }

// CreatedAt returns when the message was enqueued, by the database's clock.
func (d *Delivery) CreatedAt() time.Time { return d.claimed.CreatedAt }

// Group returns the consumer group that the message is delivered to, or an empty string in the queue.
func (d *Delivery) Group() string {
	if d.place == nil {
		return ""
	}
	return d.place.cursor.config.Group
}

// Position returns the message's position in the log, or 0 in the queue.
func (d *Delivery) Position() int64 {
	if d.place == nil {
		return 0
	}
	return d.place.position
}

// waited is how long the message was due before a handler got it.
func (d *Delivery) waited(handed time.Time) time.Duration {
	due := d.CreatedAt()
	if d.DueAt().After(due) {
		due = d.DueAt()
	}
	if d.Attempt() > 1 || due.IsZero() {
		return 0
	}
	return max(0, handed.Sub(due))
}

// SettleTx settles the message in the handler's own transaction: it is done, or failed, if and only if what the handler
// wrote is committed; an ack then changes nothing. If the commit fails, nack: the message is delivered again. The outcome
// must be Ack or Fail; to have the message delivered again, roll back and nack.
//
// Call it last. The lease of a row that a transaction has locked cannot be renewed: the message's context ends if the
// transaction is not committed within LeaseDuration.
//
// In a stream it also settles the messages before this one that have been answered and not yet settled.
//
// In a consumer group, Ack moves the group on in that transaction, and Fail also adds the message to the group's dead
// letters. The group's position in the log is locked until the transaction ends.
//
// It returns ErrLeaseLost if another worker may have the message, or another attempt has settled it: roll back. It returns a *FieldError for any other outcome.
func (d *Delivery) SettleTx(ctx context.Context, tx *sql.Tx, outcome Outcome) error {
	if tx == nil {
		return base.ErrNilDB
	}
	if outcome != Ack && outcome != Fail {
		return field.Bad("outcome", "%v cannot be settled in your transaction; roll it back and nack instead", outcome)
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
	settlement.Stages = base.Stages(d.stages.toSettle.Load())
	ahead := d.unsettledAhead()
	settlements := []Settlement{settlement}
	for _, a := range ahead {
		settlements = append(settlements, a.settlement)
		a.delivery.settledInTx.Store(&a.settlement.Outcome)
	}
	// From now on the rows may be found settled: the caller decides whether the transaction is committed.
	before := d.settledInTx.Swap(&settlement.Outcome)
	refused, err := d.outbox.settle(ctx, tx, settlements)
	if err == nil && slices.Contains(refused, settlement.Receipt) { // those ahead may have been settled meanwhile
		err = ErrLeaseLost
	}
	if err != nil {
		d.settledInTx.Store(before)
		for _, a := range ahead {
			a.delivery.settledInTx.Store(nil)
		}
	}
	return err
}

// unsettledAhead returns the answers of the messages before d in its run that still have to be settled. A message of a stream is not
// settled before its predecessors, so that these never come again after it.
func (d *Delivery) unsettledAhead() (ahead []*answer) {
	for a := d.ahead; a != nil && !a.delivery.settled.Load(); a = a.delivery.ahead {
		ahead = append(ahead, a)
	}
	return ahead
}

// SetErr records why the handler fails, before it nacks. The error becomes the row's LastError; one marked by Permanent
// fails the message at once, and one marked by Unavailable spends no attempt. middleware.Outcome calls SetErr.
func (d *Delivery) SetErr(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = err
}

// reason returns the error that SetErr recorded.
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

// ownDelay returns how long a nacked message waits instead of the Backoff; 0 leaves it to the Backoff.
func (d *Delivery) ownDelay() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.delay
}

// deliveryContext has the values of the subscription's context, but ends when the message is settled, not when the router
// begins to close.
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

// open makes the Watermill message, with the values of the subscription's context. It reports whether the message may still
// be handed out.
func (d *Delivery) open(subscription context.Context) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lost.Load() || d.lapsed.Load() {
		return false
	}
	ctx, end := context.WithCancelCause(context.WithoutCancel(subscription))
	d.msg, d.end, d.ended = d.claimed.toWatermill(), end, ctx.Done()
	d.msg.SetContext(deliveryContext{ctx, d}) //nolint:contextcheck // it outlives the subscription
	return true
}

// lose records that another worker may have the lease, and ends the handler's context. It reports whether a handler had the
// message and had not answered yet.
func (d *Delivery) lose() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lost.Store(true)
	return d.interrupt(ErrLeaseLost)
}

// lapse records that the lease has expired, and ends the handler's context, unless there is an answer: that may still be
// settled if no one else has taken the message. It reports the same as lose.
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

// answered reports whether the handler has acked or nacked. A select with both channels would lock them, for each open message
// in each sweep.
func (d *Delivery) answered() (acked, nacked bool) {
	return flow.IsClosed(d.msg.Acked()), flow.IsClosed(d.msg.Nacked())
}

// A topic is the queue between the claim loop and the subscriptions to one topic.
type topic struct {
	queue       chan *Delivery // claimed and not yet handed out; has room for all of MaxInFlight
	subscribers int
}

// dispatch ends a claim, which was sent at the given time, also one that failed, and puts its messages into the queues of their
// topics.
func (s *Subscriber) dispatch(ctx context.Context, allowed flow.Allowance, claimed []*Claimed, sent time.Time) {
	deliveries := make([]*Delivery, len(claimed))
	for i, c := range claimed {
		deliveries[i] = &Delivery{claimed: c, outbox: s.outbox, deadline: c.deadline(sent)}
	}
	s.window.Claimed(allowed, deliveries)
	if len(deliveries) == 0 {
		return
	}
	s.holdings.Add(deliveries, sent)
	s.keeper.leases.begin(ctx)
	ended := map[streamName]bool{}
	for _, d := range s.settler.runs.begin(deliveries...) { // in order of seq
		if ended[d.stream()] {
			s.settler.giveBack(Release, nil, d)
		} else if !s.hand(d) && d.StreamKey() != "" {
			ended[d.stream()] = true
		}
	}
}

// hand puts a message into the queue of its topic, or gives it back and returns false.
func (s *Subscriber) hand(d *Delivery) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.topics[d.Topic()]
	switch {
	case s.config.MaxAttempts != -1 && d.Attempt() > s.config.MaxAttempts:
		s.settler.giveBack(Fail, errNoAttemptsLeft, d)
	case d.claimed.Malformed != nil:
		s.settler.giveBack(Fail, fmt.Errorf("the row cannot be read: %w", d.claimed.Malformed), d)
	case d.expired() != nil:
		s.settler.giveBack(Fail, d.expired(), d)
	case t == nil || flow.IsClosed(s.closing): // unsubscribed since the claim
		s.settler.giveBack(Release, nil, d)
	default:
		t.queue <- d // has room for the whole window
		return true
	}
	return false
}

// serve hands messages out, one at a time.
func (s *Subscriber) serve(ctx context.Context, t *topic, out chan<- *message.Message) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.closing:
			return
		case d := <-t.queue:
			if err := d.expired(); err != nil { // while it waited here
				s.settler.giveBack(Fail, err, d)
				continue
			}
			if !d.open(ctx) {
				s.settler.giveBack(Release, nil, d)
				continue
			}
			s.logDelivery(d)
			select {
			case out <- d.msg:
				s.settler.watch(d)
			case <-d.ended: // its lease was lost
				s.settler.giveBack(Release, nil, d)
			case <-ctx.Done():
				s.settler.giveBack(Release, nil, d)
				return
			case <-s.closing:
				s.settler.giveBack(Release, nil, d)
				return
			}
		}
	}
}

func (s *Subscriber) logDelivery(d *Delivery) {
	if s.config.HandlerLog == LogOff || !logs(s.logger) {
		return
	}
	log := s.logger.Info
	switch s.config.HandlerLog {
	case slog.LevelDebug:
		log = s.logger.Debug
	case watermill.LevelTrace:
		log = s.logger.Trace
	}
	log("Handling message", d.logFields().Add(watermill.LogFields{"attempt": d.Attempt()}))
}
