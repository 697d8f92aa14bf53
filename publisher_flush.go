package outbox

import (
	"bytes"
	"context"
	"database/sql"
	"maps"
	"time"

	"github.com/incursa/watermill-outbox/internal/field"
)

// FlushStrategy says which calls of Publish are written together. It never changes what success means: Publish returns nil only
// once its messages are committed, or inside the caller's transaction.
type FlushStrategy int

// The strategies. Scoped is for transactions with many calls, Interval and Batch are for many callers without transactions;
// for all other calls they are Immediate.
const (
	// Immediate writes each call by itself.
	Immediate FlushStrategy = 0

	// Scoped collects the calls in a transaction and writes them together: at the end of InTx, and before anything else of
	// this module runs in the transaction, such as settling or attaching to a join. Publish returns at once
	// what is wrong with a message; errors of the database come from whatever writes, usually InTx.
	//
	// In a transaction of your own, call Publisher.Flush before you commit it, before you set or roll back to a savepoint, and
	// before you read the outbox's tables yourself.
	Scoped FlushStrategy = 1

	// Interval is Batch, but the first call of a batch waits for others, for PublisherConfig.FlushInterval.
	Interval FlushStrategy = 2

	// Batch writes calls without a transaction together if they are waiting at the same time: while one batch is committed,
	// the next one gathers. A lone call does not wait. If the database rejects some of the messages, only their own calls
	// fail.
	Batch FlushStrategy = 3
)

// The defaults and limits of batches.
const (
	defaultFlushInterval = 10 * time.Millisecond
	maxFlushInterval     = time.Minute
	defaultFlushWaiting  = 10_000
	defaultCloseTimeout  = 30 * time.Second
)

func (c *PublisherConfig) setDefaults() {
	if c.Flush == Interval {
		field.Default(&c.FlushInterval, defaultFlushInterval)
	}
	if c.Flush == Interval || c.Flush == Batch {
		field.Default(&c.FlushMessages, maxBatch)
		field.Default(&c.FlushBytes, maxBatchBytes)
		field.Default(&c.FlushWaiting, defaultFlushWaiting)
		field.Default(&c.CloseTimeout, defaultCloseTimeout)
	}
}

// validate checks what is not part of Config.
func (c *PublisherConfig) validate(x Executor) error {
	_, pool := x.(*sql.DB)
	switch {
	case c.Flush < Immediate || c.Flush > Batch:
		return field.Bad("Flush", "%d is none of Immediate, Scoped, Interval and Batch", int(c.Flush))
	case c.Flush != Interval && c.FlushInterval != 0:
		return field.Bad("FlushInterval", "is set, but Flush is not Interval; set Flush, or leave this 0")
	case c.Flush < Interval:
		return c.refuseLimits()
	case c.RequireTx:
		return field.Bad("Flush", "is for calls without a transaction, which RequireTx refuses; use Scoped")
	case !pool:
		return field.Bad("Flush", "is for calls without a transaction, which need a publisher on a *sql.DB; use Scoped")
	case c.Flush == Interval && (c.FlushInterval < 0 || c.FlushInterval > maxFlushInterval):
		return field.Bad("FlushInterval", "%v is not above 0 and up to %v", c.FlushInterval, maxFlushInterval)
	case c.FlushMessages < 1 || c.FlushMessages > maxBatch:
		return field.Bad("FlushMessages", "%d is not between 1 and %d", c.FlushMessages, maxBatch)
	case c.FlushBytes < 1 || c.FlushBytes > maxBatchBytes:
		return field.Bad("FlushBytes", "%d is not between 1 and %d", c.FlushBytes, maxBatchBytes)
	case c.FlushWaiting < 1:
		return field.Bad("FlushWaiting", "%d is below 1", c.FlushWaiting)
	case c.CloseTimeout < 0:
		return field.Bad("CloseTimeout", "%v is negative", c.CloseTimeout)
	default:
		return nil
	}
}

// refuseLimits refuses limits of batches, which would be ignored.
func (c *PublisherConfig) refuseLimits() error {
	for _, limit := range []struct {
		name string
		set  bool
	}{
		{"FlushMessages", c.FlushMessages != 0}, {"FlushBytes", c.FlushBytes != 0},
		{"FlushWaiting", c.FlushWaiting != 0}, {"CloseTimeout", c.CloseTimeout != 0},
	} {
		if limit.set {
			return field.Bad(limit.name, "is set, but Flush is neither Interval nor Batch; set Flush, or leave this 0")
		}
	}
	return nil
}

// Flush writes what was collected and waits for it.
//
// With Scoped, that is what was collected in the transaction of ctx, or in the Publisher's own. Call it before you commit a
// transaction of your own; InTx does it itself. After an error the messages stay collected, so that Flush can be tried again,
// unless the transaction has already ended: the error then names them, because they are lost if it was committed.
//
// With Interval and Batch, calls that wait are written at once, and Flush returns when each has its answer, or ctx ends. With
// Immediate it does nothing.
func (p *Publisher) Flush(ctx context.Context) error {
	if p.batches != nil {
		return p.batches.flush(ctx)
	}
	tx, _ := p.x.(*sql.Tx)
	if carried, ok := TxFrom(ctx); ok {
		tx = carried
	}
	if tx == nil {
		return nil
	}
	return flushTx(ctx, tx)
}

// A pending call is one whose messages are valid and have ids, and are to be inserted.
type pendingCall struct {
	messages []Message
	rows     []enqueuedMessage
	topics   []string
	counts   []int // by topic
	bytes    int
	at       time.Time // when Publish was called
}

// pending checks the messages of a call. It copies what the caller might change before they are inserted.
func (o *Outbox) pending(messages []Message) (*pendingCall, error) {
	for i := range messages {
		messages[i].Payload = bytes.Clone(messages[i].Payload)
		messages[i].Headers = maps.Clone(messages[i].Headers)
	}
	rows, _, err := o.prepare(messages)
	if err != nil {
		return nil, err
	}
	c := &pendingCall{messages: messages, rows: rows, at: time.Now()}
	c.topics, c.counts = topicsOf(messages)
	for i := range messages {
		c.bytes += messages[i].size()
	}
	return c, nil
}

// insertPending inserts the messages of several calls, in order.
func (o *Outbox) insertPending(ctx context.Context, x Executor, calls []*pendingCall) error {
	n := 0
	for _, c := range calls {
		n += len(c.messages)
	}
	messages, rows := make([]Message, 0, n), make([]enqueuedMessage, 0, n)
	for _, c := range calls {
		messages, rows = append(messages, c.messages...), append(rows, c.rows...)
		added := rows[len(rows)-len(c.rows):]
		for i := range added { // a delay runs from the call
			added[i].DelayMS = max(added[i].DelayMS-time.Since(c.at).Milliseconds(), 0)
		}
	}
	return o.insert(ctx, x, messages, rows)
}

func (c *pendingCall) event(calls int, took time.Duration, err error) PublishEvent {
	return PublishEvent{Topics: c.topics, Counts: c.counts, Messages: len(c.messages), Calls: calls, Took: took, Err: err}
}
