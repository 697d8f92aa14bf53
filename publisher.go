package outbox

import (
	"cmp"
	"context"
	"database/sql"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/field"
)

// PublisherConfig configures a Publisher.
type PublisherConfig struct {
	// Dialect is the database: SQLServer{}, Postgres{} or SQLite{}. Required.
	Dialect Dialect

	// Schema and Table name the outbox. Default to those of Config.
	Schema, Table string

	// Store names this outbox among several, as in Config. Defaults to none.
	Store string

	// RequireTx makes Publish return ErrTxRequired outside a transaction: it catches a handler that forgot to pass one on.
	// A *sql.Conn counts as a transaction that you have begun on it. Defaults to false.
	RequireTx bool

	// Log says whether messages go to the queue, to the log, or to both. Defaults to QueueOnly.
	Log LogMode

	// StreamKey returns a message's StreamKey, which is the record's key on Kafka. If it returns an empty string, the header
	// outbox_stream_key (HeaderStreamKey) counts. Defaults to that header.
	StreamKey func(topic string, msg *message.Message) string

	// EventStream returns the stream of package eventstore that a message is an event of: it is stored there in the same
	// transaction, at whatever version, besides being queued unless Log is LogOnly. An empty string is no stream. The messages of
	// a call are stored stream by stream, in order within each. Defaults to none.
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

	beside func(ctx context.Context, x Executor, messages []*message.Message, ids []MessageID) error // see seam.Publishing; may be nil
}

var _ message.Publisher = (*Publisher)(nil)

// NewPublisher returns a publisher on x: a *sql.DB, or a *sql.Tx for a publisher that lives as long as that transaction.
//
// On a *sql.DB, the messages of a call that carry a transaction in their context (WithTx, InTx) are written in that
// transaction, others in one of their own. x may be nil if RequireTx is set and every message carries a transaction. A nil
// logger logs nothing. It returns an error if x is nil without RequireTx, or a *FieldError that names a bad field.
func NewPublisher(x Executor, config PublisherConfig, logger watermill.LoggerAdapter) (*Publisher, error) {
	if isNil(x) {
		if !config.RequireTx {
			return nil, base.ErrNilDB
		}
		x = nil
	}
	o, err := newOutbox(nil, Config{
		Dialect: config.Dialect, Schema: config.Schema, Table: config.Table, Store: config.Store, Log: config.Log, Hooks: config.Hooks}, logger)
	if err != nil {
		return nil, field.In("PublisherConfig", err)
	}
	return &Publisher{outbox: o, x: x, config: config}, nil
}

// Publish writes any number of messages in order, all or none. It honours the metadata correlation_id, outbox_stream_key and
// Watermill's delay headers. Publishing no messages is no error.
//
// It returns ErrClosed, ErrTxRequired, ErrSchema, or a *FieldError for an invalid message, or for messages that carry
// different transactions. ErrUnknownOutcome means that the answer to its own commit was lost: the messages may have been
// published. It is never returned in your own transaction.
func (p *Publisher) Publish(topic string, messages ...*message.Message) error {
	if p.closed.Load() {
		return ErrClosed
	}
	if len(messages) == 0 {
		return nil
	}
	scope, err := commonScope(messages)
	if err != nil {
		return err
	}
	x := p.x
	if scope != nil {
		if tx, other := p.x.(*sql.Tx); other && tx != scope.tx {
			return errMixedTx
		}
		x = scope.tx
	}
	if _, own := x.(*sql.DB); p.config.RequireTx && (own || x == nil) {
		return ErrTxRequired
	}
	rows := make([]Message, len(messages))
	for i, msg := range messages {
		if rows[i], err = fromWatermill(topic, msg); err != nil {
			return err
		}
		if p.config.StreamKey != nil {
			rows[i].StreamKey = cmp.Or(p.config.StreamKey(topic, msg), rows[i].StreamKey)
		}
	}
	// Watermill has no context for the call; the first message's stands for all.
	ctx := messages[0].Context()
	if p.beside == nil {
		_, err = p.write(ctx, x, topic, messages, rows)
		return err
	}
	return p.outbox.inTx(ctx, x, func(ctx context.Context, x Executor) error {
		ids, err := p.write(ctx, x, topic, messages, rows)
		if err != nil {
			return err
		}
		return p.beside(ctx, x, messages, ids)
	})
}

// Close makes later calls return ErrClosed. Nothing is buffered, so nothing is flushed; the database stays open.
func (p *Publisher) Close() error {
	p.closed.Store(true)
	return nil
}

// commonScope is the transaction that the messages carry: all the same one, or none.
func commonScope(messages []*message.Message) (*txScope, error) {
	first := scopeFrom(messages[0].Context())
	for _, msg := range messages[1:] {
		scope := scopeFrom(msg.Context())
		if (scope == nil) != (first == nil) || scope != nil && scope.tx != first.tx {
			return nil, errMixedTx
		}
	}
	return first, nil
}
