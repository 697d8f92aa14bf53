package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/engine"
	"github.com/incursa/watermill-outbox/internal/seam"
)

// The other packages of this module are built on these functions, which users do not see. Package seam documents them.
func init() {
	seam.Outbox = func(o seam.AnOutbox) seam.Operations { return operations{own[*Outbox](o)} }
	seam.Publisher = func(p message.Publisher) seam.Publishing { return publishing{own[*Publisher](p)} }
	seam.Subscriber = func(s seam.ASubscriber) seam.Subscribing { return subscribing{own[*Subscriber](s)} }
	seam.Delivery = func(d seam.ADelivery) seam.Delivering { return delivering{own[*Delivery](d)} }
	seam.Stages = func(d seam.ADelivery) seam.Staging { return staging{own[*Delivery](d)} }
	seam.OpenCursor = func(o seam.AnOutbox, config seam.CursorConfig) (any, error) {
		return own[*Outbox](o).openCursor(config)
	}
	seam.SQLServerLog = newSQLServerLog
	seam.WatchSequencer = func(o seam.AnOutbox, logger watermill.LoggerAdapter, lease, after time.Duration) func(context.Context) error {
		return newSequencerWatch(own[*Outbox](o), logger, lease, after).look
	}
	seam.WakeStore = wakeStore
	seam.Sequencer = func(s seam.ASequencer) seam.Stamping { return stamping{own[*Sequencer](s)} }
}

// own returns the value of this package's type that package seam passes as an interface.
func own[T any](value any) T {
	v, ok := value.(T)
	if !ok {
		panic(fmt.Sprintf("outbox: internal/seam was given a %T", value))
	}
	return v
}

type operations struct{ outbox *Outbox }

func (o operations) Logger() watermill.LoggerAdapter { return o.outbox.logger }

func (o operations) Run(ctx context.Context, x Executor, op string, arg any, scan func(*sql.Rows) error) error {
	return o.RunWithBytes(ctx, x, op, arg, nil, scan)
}

func (o operations) RunWithBytes(ctx context.Context, x Executor, op string, arg any, bytes []byte, scan func(*sql.Rows) error) error {
	x, err := o.outbox.executor(ctx, x)
	if err != nil {
		return err
	}
	return o.outbox.run(ctx, x, operation(op), arg, bytes, scan)
}

func (o operations) InTx(ctx context.Context, x Executor, f func(context.Context, Executor) error) error {
	x, err := o.outbox.executor(ctx, x)
	if err != nil {
		return err
	}
	return o.outbox.inTx(ctx, x, f)
}

func (o operations) ChangeJoin(ctx context.Context, x Executor, op string, arg any) (int, error) {
	x, err := o.outbox.executor(ctx, x)
	if err != nil {
		return 0, err
	}
	return o.outbox.changeJoin(ctx, x, operation(op), arg)
}

func (o operations) Around(around func(ctx context.Context, batch seam.Batch) (int, error)) seam.AnOutbox {
	other := *o.outbox
	other.around = around
	return &other
}

// executor is x. Without one it is the transaction that ctx carries, unless InTx began that on another *sql.DB, or else the
// outbox's own *sql.DB.
func (o *Outbox) executor(ctx context.Context, x Executor) (Executor, error) {
	carried := carriedBy(ctx)
	switch {
	case x != nil:
		return x, nil
	case carried.tx == nil:
		return o.db, nil
	case carried.db != nil && carried.db != o.db:
		return nil, errOtherTx
	default:
		return carried.tx, nil
	}
}

// batch runs one batch of an act: in a transaction of its own, or in that of what is around it.
func (o *Outbox) batch(ctx context.Context, do seam.Batch) (int, error) {
	if o.around == nil {
		return do(ctx, o.db)
	}
	return o.around(ctx, do)
}

func (o operations) AppendEvents(ctx context.Context, x Executor, stream string, expected int64, events []base.Event) (base.Appended, error) {
	messages := make([]Message, len(events))
	for i, e := range events {
		messages[i] = Message{
			ID: e.ID, UUID: e.UUID, Topic: e.Topic, Payload: e.Payload, Headers: e.Headers, CorrelationID: e.CorrelationID, StreamKey: stream}
	}
	x, err := o.outbox.executor(ctx, x)
	if err != nil {
		return base.Appended{}, err
	}
	done, _, err := o.outbox.appendEvents(ctx, x, stream, expected, messages)
	return done, err
}

func (o *Outbox) run(ctx context.Context, x Executor, op operation, arg any, bytes []byte, scan func(*sql.Rows) error) error {
	if isNil(x) {
		return base.ErrNilDB
	}
	if scan == nil {
		_, err := engine.Call[struct{}](ctx, o.engine, x, op, arg, bytes, nil)
		return err
	}
	_, err := engine.Call(ctx, o.engine, x, op, arg, bytes, func(rows *sql.Rows, _ *struct{}) error { return scan(rows) })
	return err
}

func (o *Outbox) inTx(ctx context.Context, x Executor, f func(ctx context.Context, x Executor) error) error {
	if isNil(x) {
		return base.ErrNilDB
	}
	db, own := x.(*sql.DB)
	if !own {
		return o.engine.InSavepoint(ctx, x, func(x Executor) error { return f(ctx, x) })
	}
	ownCtx := WithTx(ctx, nil) // it runs in its own transaction, whatever the context carries
	once := func() error {
		return InTx(ownCtx, db, func(ctx context.Context, tx *sql.Tx) error { return f(ctx, tx) })
	}
	return o.engine.Retry(ctx, db, func() error { return engine.Elsewhere(once) })
}

func (o *Outbox) changeJoin(ctx context.Context, x Executor, op operation, arg any) (messages int, err error) {
	if isNil(x) {
		return 0, base.ErrNilDB
	}
	rows, err := engine.Call(ctx, o.engine, x, op, arg, nil, func(rows *sql.Rows, r *countRow) error { return r.scan(rows) })
	if err != nil {
		return 0, err
	}
	for _, r := range rows {
		if r.seq > 0 {
			messages++
		}
	}
	return messages, o.joinsEnded(x, rows)
}

type publishing struct{ publisher *Publisher }

func (p publishing) Beside(wanted func([]*message.Message) bool, do func(context.Context, Executor, []*message.Message, []MessageID) error) {
	p.publisher.beside = beside{wanted, do}
}

func (p publishing) Waiting() int {
	if p.publisher.batches == nil {
		return 0
	}
	return p.publisher.batches.unsent()
}

type subscribing struct{ subscriber *Subscriber }

func (s subscribing) SubscribeInto(ctx context.Context, topic string, out chan<- *message.Message, done func()) error {
	return s.subscriber.subscribeInto(ctx, topic, out, done)
}

func (s subscribing) LimitBy(limiter seam.Limiter) {
	s.subscriber.limiter, s.subscriber.settler.limiter, s.subscriber.keeper.limiter = limiter, limiter, limiter
}

type delivering struct{ delivery *Delivery }

func (d delivering) In(ctx context.Context) context.Context { return d.delivery.in(ctx) }
func (d delivering) Claim() (WorkItemID, OwnerToken) {
	return d.delivery.claimed.Receipt.Seq, d.delivery.claimed.Receipt.Owner
}
func (d delivering) Postpone(delay time.Duration) { d.delivery.postpone(delay) }

func (d delivering) ReleaseTx(ctx context.Context, tx *sql.Tx, delay time.Duration) error {
	return d.delivery.releaseTx(ctx, tx, delay)
}

func (d delivering) Released() bool {
	outcome := d.delivery.settledInTx.Load()
	return outcome != nil && *outcome == Release
}

type stamping struct{ sequencer *Sequencer }

func (s stamping) Stamp(ctx context.Context) (int, error) { return s.sequencer.stamp(ctx) }
