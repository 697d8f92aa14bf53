package outbox

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/field"
)

// PublisherConfig configures a Publisher.
type PublisherConfig struct {
	// Dialect is the database: SQLServer{}, Postgres{} or SQLite{}. Required.
	Dialect Dialect

	// Schema and Table name the outbox. Default to dbo and Outbox on SQL Server,
	// public and outbox on PostgreSQL, and outbox on SQLite, where Schema must be empty.
	Schema, Table string

	// Store names this outbox among several, as in Config. Defaults to none.
	Store string

	// RequireTx makes Publish return ErrTxRequired outside a transaction: it catches a handler that forgot to pass one on.
	// A *sql.Conn counts as a transaction that you have begun on it. It cannot be combined with a Flush of Interval or Batch,
	// which are for calls without a transaction. Defaults to false.
	RequireTx bool

	// Log says whether messages go to the queue, to the log, or to both. Defaults to QueueOnly.
	Log LogMode

	// StreamKey returns a message's StreamKey, which is the record's key on Kafka. If it returns an empty string, the header
	// outbox_stream_key (HeaderStreamKey) counts. Defaults to that header.
	StreamKey func(topic string, msg *message.Message) string

	// MessageID returns the id of a message, or a zero one for a new id. Set it if a Publish whose outcome is unknown is to be
	// repeated without publishing twice: it then returns ErrDuplicateID if the first one was committed. Defaults to new ids.
	MessageID func(topic string, msg *message.Message) MessageID

	// Flush says which calls are written together: Immediate, Scoped, Interval or Batch. Interval and Batch need a publisher on
	// a *sql.DB without RequireTx. Defaults to Immediate.
	Flush FlushStrategy

	// FlushInterval is how long the first call of a batch waits for others. Up to 1 minute, and only with Interval. Defaults
	// to 10 ms.
	FlushInterval time.Duration

	// FlushMessages and FlushBytes are the most messages, 1 to 1,000, and the most bytes of payloads and headers that several
	// calls are written with. A larger call is written by itself. Only with Interval and Batch. Default to 1,000 and 8 MB.
	FlushMessages, FlushBytes int

	// FlushWaiting is the most calls that wait for their commit. Further ones wait for a place, as long as their contexts
	// allow. Only with Interval and Batch. Defaults to 10,000.
	FlushWaiting int

	// CloseTimeout bounds Close. Calls still waiting then get ErrClosed, or ErrUnknownOutcome if already sent. Only with
	// Interval and Batch. Defaults to 30 s.
	CloseTimeout time.Duration

	// EventStream returns the stream of package eventstore that a message is an event of: it is stored there in the same
	// transaction, at whatever version, besides being queued unless Log is LogOnly. An empty string is no stream. The messages of
	// a call are stored stream by stream, in order within each, and by themselves, whatever Flush says. Defaults to none.
	EventStream func(topic string, msg *message.Message) string

	// Hooks are called as things happen. Defaults to none.
	Hooks Hooks
}

// A Publisher is a Watermill publisher that writes messages into the outbox. It is safe for concurrent use, and one may
// serve any number of transactions.
type Publisher struct {
	outbox *Outbox
	x      Executor
	config PublisherConfig
	closed atomic.Bool
	close  func() error

	batches   *batches // with Interval and Batch
	unflushed unflushed

	beside beside // see seam.Publishing
}

// beside is done in the transaction of a call that wants it.
type beside struct {
	wanted func(messages []*message.Message) bool // nil if nothing is
	do     func(ctx context.Context, x Executor, messages []*message.Message, ids []MessageID) error
}

var _ message.Publisher = (*Publisher)(nil)

// NewPublisher returns a publisher on x: a *sql.DB, or a *sql.Tx for a publisher that lives as long as that transaction.
//
// On a *sql.DB, the messages of a call that carry a transaction in their context (WithTx, InTx) are written in that
// transaction, others in one of their own. A transaction of InTx on another *sql.DB is refused, because that may be another
// database. x may be nil if RequireTx is set and every message carries a transaction. A nil logger logs nothing. It returns an
// error if x is nil without RequireTx, or a *FieldError that names a bad field.
func NewPublisher(x Executor, config PublisherConfig, logger watermill.LoggerAdapter) (*Publisher, error) {
	if isNil(x) {
		if !config.RequireTx {
			return nil, base.ErrNilDB
		}
		x = nil
	}
	db, pool := x.(*sql.DB)
	o, err := newOutbox(db, Config{
		Dialect: config.Dialect, Schema: config.Schema, Table: config.Table, Store: config.Store, Log: config.Log, Hooks: config.Hooks}, logger)
	if err != nil {
		return nil, field.In("PublisherConfig", err)
	}
	config.setDefaults()
	if err := config.validate(x); err != nil {
		return nil, field.In("PublisherConfig", err)
	}
	p := &Publisher{outbox: o, x: x, config: config}
	p.close = sync.OnceValue(p.unflushedAtClose)
	if pool && config.Flush >= Interval {
		p.batches = newBatches(o, db, config)
		p.close = sync.OnceValue(p.batches.close)
	}
	return p, nil
}

// Publish writes any number of messages in order, all or none. It honours the metadata correlation_id, outbox_stream_key and
// Watermill's delay headers. Publishing no messages is no error.
//
// It returns ErrClosed, ErrTxRequired, ErrSchema, ErrDuplicateID if PublisherConfig.MessageID repeats an id, or a *FieldError
// for an invalid message, or for messages that carry different transactions or one of InTx on another *sql.DB.
// ErrUnknownOutcome means that the answer to its own commit was lost: the messages may have been published. With Interval and
// Batch it is also returned when the context of the first message ends after the batch was sent. It is never returned on your
// own *sql.Tx; on a *sql.Conn the outbox cannot tell whether you have begun a transaction, and returns it whenever the
// connection breaks.
func (p *Publisher) Publish(topic string, messages ...*message.Message) error {
	if p.closed.Load() {
		return ErrClosed
	}
	if len(messages) == 0 {
		return nil
	}
	if i := slices.Index(messages, nil); i >= 0 {
		return field.Bad("messages", "message %d of %d is nil", i+1, len(messages))
	}
	x, err := p.executor(messages)
	if err != nil {
		return err
	}
	if _, own := x.(*sql.DB); p.config.RequireTx && (own || x == nil) {
		return ErrTxRequired
	}
	list, err := p.fromWatermill(topic, messages)
	if err != nil {
		return err
	}
	// Watermill has no context for the call; the first message's stands for all.
	return p.write(messages[0].Context(), x, topic, messages, list)
}

func (p *Publisher) fromWatermill(topic string, messages []*message.Message) ([]Message, error) {
	list := make([]Message, len(messages))
	for i, msg := range messages {
		var err error
		if list[i], err = fromWatermill(topic, msg); err != nil {
			return nil, err
		}
		if p.config.StreamKey != nil {
			list[i].StreamKey = cmp.Or(p.config.StreamKey(topic, msg), list[i].StreamKey)
		}
		if p.config.MessageID != nil {
			list[i].ID = p.config.MessageID(topic, msg)
		}
	}
	return list, nil
}

// write writes the messages together with other calls, or alone. Events, and whatever else belongs to the call, are written at
// once, so that this call returns their errors.
func (p *Publisher) write(ctx context.Context, x Executor, topic string, messages []*message.Message, list []Message) error {
	streams := p.eventStreams(topic, messages)
	if p.beside.wanted != nil && p.beside.wanted(messages) {
		return p.outbox.inTx(ctx, x, func(ctx context.Context, x Executor) error {
			ids, err := p.enqueue(ctx, x, list, streams)
			if err != nil {
				return err
			}
			return p.beside.do(ctx, x, messages, ids)
		})
	}
	tx, inTx := x.(*sql.Tx)
	switch {
	case streams != nil:
	case inTx && p.config.Flush == Scoped:
		return p.collect(tx, list)
	case !inTx && p.batches != nil:
		return p.batches.publish(ctx, list)
	}
	_, err := p.enqueue(ctx, x, list, streams)
	return err
}

// Close makes later calls return ErrClosed. The database stays open.
//
// With Interval and Batch it first writes the calls that wait. After CloseTimeout they return ErrClosed, or
// ErrUnknownOutcome if their messages were already sent, and Close returns an error. With Scoped it returns an error that
// names messages which were collected in a transaction of the caller's own and never flushed: they are lost if it was
// committed, and are named even if it was rolled back, because database/sql does not tell how a transaction ended.
func (p *Publisher) Close() error {
	p.closed.Store(true)
	return p.close()
}

// executor is what the messages are written on: the transaction that they carry, all the same one, or the publisher's own.
func (p *Publisher) executor(messages []*message.Message) (Executor, error) {
	carried := carriedBy(messages[0].Context())
	for _, msg := range messages[1:] {
		if carriedBy(msg.Context()).tx != carried.tx {
			return nil, errMixedTx
		}
	}
	if carried.tx == nil {
		return p.x, nil
	}
	switch own := p.x.(type) {
	case *sql.Tx:
		if own != carried.tx {
			return nil, errMixedTx
		}
	case *sql.DB:
		if carried.db != nil && carried.db != own {
			return nil, errPublishOtherTx
		}
	}
	return carried.tx, nil
}
