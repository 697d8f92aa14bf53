package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/engine"
	"github.com/incursa/watermill-outbox/internal/field"
)

// Enqueue inserts messages in order, all or none, and returns their ids. On a *sql.DB it makes its own transaction; on a
// *sql.Tx or *sql.Conn it runs in the caller's, which it never ends.
//
// It returns a *FieldError for an invalid message, and ErrDuplicateID if a Message.ID already exists. In both cases nothing
// was written, and the caller's transaction can go on. ErrUnknownOutcome means that the answer to its own commit was lost. If
// you chose the IDs, enqueue the messages again: ErrDuplicateID then means that they were committed.
//
// Subscribers of this process are woken after its own commit, and after that of InTx; after your own, call Wake.
func (o *Outbox) Enqueue(ctx context.Context, x Executor, messages ...Message) ([]MessageID, error) {
	if isNil(x) {
		return nil, base.ErrNilDB
	}
	if len(messages) == 0 {
		return nil, nil
	}
	rows, ids, err := o.prepare(messages)
	if err != nil {
		return nil, err
	}
	topics, counts := topicsOf(messages)
	started := time.Now()
	err = o.insert(ctx, x, messages, rows)
	o.enqueued(PublishEvent{Topics: topics, Counts: counts, Messages: len(messages), Calls: 1, Took: time.Since(started), Err: err}, rows[0].CorrelationID)
	if err != nil {
		return nil, err
	}
	o.wakeAfter(x, topics)
	return ids, nil
}

// enqueued reports a call that inserted messages, or tried to.
func (o *Outbox) enqueued(e PublishEvent, correlationID string) {
	e.Store = o.config.Store
	o.config.Hooks.published(e)
	if e.Err == nil && logs(o.logger) {
		o.logger.Info("Enqueued messages", watermill.LogFields{
			"topic": strings.Join(e.Topics, ", "), "correlation_id": correlationID, "count": e.Messages})
	}
}

// enqueuedMessage is a message on the wire; At and Size locate its payload among the joined payloads.
type enqueuedMessage struct {
	N             int               `json:"n"`
	ID            string            `json:"id"`
	UUID          string            `json:"uuid"`
	Topic         string            `json:"topic"`
	TopicKey      int64             `json:"topic_key"`
	At            int               `json:"at"`
	Size          int               `json:"size"`
	Headers       map[string]string `json:"headers,omitempty"`
	HeadersText   string            `json:"headers_text,omitempty"`
	CorrelationID string            `json:"correlation_id,omitempty"`
	StreamKey     string            `json:"stream_key,omitempty"`
	StreamID      int64             `json:"stream_id,omitempty"`
	DueMS         *int64            `json:"due_ms,omitempty"`
	DelayMS       int64             `json:"delay_ms,omitempty"`
	LogOnly       bool              `json:"log_only,omitempty"`
}

func (o *Outbox) prepare(messages []Message) ([]enqueuedMessage, []MessageID, error) {
	rows := make([]enqueuedMessage, len(messages))
	ids := make([]MessageID, len(messages))
	newID := o.engine.Dialect.Traits().NewMessageID
	var err error
	for i := range messages {
		m := &messages[i]
		if err := m.validate(); err != nil {
			if len(messages) > 1 {
				err = fmt.Errorf("message %d of %d: %w", i+1, len(messages), err)
			}
			return nil, nil, err
		}
		ids[i] = m.ID
		if ids[i] == (MessageID{}) {
			if ids[i], err = newID(); err != nil {
				return nil, nil, err
			}
		}
		rows[i] = enqueuedMessage{
			ID: ids[i].String(), UUID: m.UUID, Topic: m.Topic, Headers: m.storedHeaders(),
			CorrelationID: m.CorrelationID, StreamKey: m.StreamKey, StreamID: streamID(m.Topic, m.StreamKey), DelayMS: m.Delay.Milliseconds(),
		}
		if i > 0 && m.Topic == messages[i-1].Topic {
			rows[i].TopicKey = rows[i-1].TopicKey
		} else {
			rows[i].TopicKey = topicKey(m.Topic)
		}
		if rows[i].HeadersText, err = headersWithNUL(rows[i].Headers); err != nil {
			return nil, nil, err
		}
		if rows[i].HeadersText != "" {
			rows[i].Headers = nil
		}
		if rows[i].CorrelationID == "" {
			rows[i].CorrelationID = m.Headers[base.HeaderCorrelationID]
			if err := field.Text("Headers["+base.HeaderCorrelationID+"]", rows[i].CorrelationID); err != nil {
				return nil, nil, err
			}
		}
		rows[i].LogOnly = o.config.Log == LogOnly
		if !m.DueAt.IsZero() {
			due := m.DueAt.UnixMilli()
			rows[i].DueMS = &due
		}
	}
	return rows, ids, nil
}

// insert sends the rows in batches. More than one batch needs its own transaction, or a savepoint in the caller's.
func (o *Outbox) insert(ctx context.Context, x Executor, messages []Message, rows []enqueuedMessage) error {
	first := batchEnd(messages, 0)
	named := slices.ContainsFunc(messages, func(m Message) bool { return m.ID != MessageID{} })
	if first == len(messages) && (engine.Ours(x) || !named) { // an id that already exists must not end the caller's transaction
		return o.insertBatch(ctx, x, messages, rows)
	}
	return o.inTx(ctx, x, func(ctx context.Context, x Executor) error {
		for from, to := 0, first; from < len(rows); from, to = to, batchEnd(messages, to) {
			if err := o.insertBatch(ctx, x, messages[from:to], rows[from:to]); err != nil {
				return err
			}
		}
		return nil
	})
}

func (o *Outbox) insertBatch(ctx context.Context, x Executor, messages []Message, rows []enqueuedMessage) error {
	op := o.enqueueOperation(rows)
	if op == opEnqueue && len(rows) == 1 {
		args, err := rows[0].parameters(messages[0].Payload)
		if err != nil {
			return err
		}
		return o.engine.Do(ctx, x, opEnqueueOne, args)
	}
	payloads := joinPayloads(messages, rows)
	if o.engine.Dialect.Traits().Columns {
		args, err := columns(rows, payloads)
		if err != nil {
			return err
		}
		return o.engine.Do(ctx, x, op, args)
	}
	_, err := engine.Call[struct{}](ctx, o.engine, x, op, rows, payloads, nil)
	return err
}

// parameters returns the message as typed parameters of opEnqueueOne.
func (m *enqueuedMessage) parameters(payload []byte) ([]any, error) {
	headers, err := m.headersText()
	if err != nil {
		return nil, err
	}
	if payload == nil {
		payload = []byte{} // the column is NOT NULL
	}
	var due sql.NullInt64
	if m.DueMS != nil {
		due = sql.NullInt64{Int64: *m.DueMS, Valid: true}
	}
	delay := sql.NullInt64{Int64: m.DelayMS, Valid: m.DelayMS != 0}
	return []any{m.ID, m.UUID, m.Topic, m.TopicKey, payload, optional(headers), optional(m.CorrelationID), optional(m.StreamKey), due, delay}, nil
}

// headersText returns the headers as JSON, or empty for none.
func (m *enqueuedMessage) headersText() (string, error) {
	if len(m.Headers) == 0 {
		return m.HeadersText, nil
	}
	text, err := engine.Encode(m.Headers)
	if err != nil {
		return "", fmt.Errorf("encode the headers: %w", err)
	}
	return text, nil
}

// optional is NULL for an empty text. It has a type, because not every server accepts a parameter without one.
func optional(text string) sql.NullString { return sql.NullString{String: text, Valid: text != ""} }

// enqueueOperation returns opEnqueue if the messages need only contents and states.
func (o *Outbox) enqueueOperation(rows []enqueuedMessage) operation {
	switch {
	case o.config.Log != QueueOnly:
		return opLogEnqueue
	case slices.ContainsFunc(rows, func(m enqueuedMessage) bool { return m.StreamID != 0 }):
		return opStreamEnqueue
	default:
		return opEnqueue
	}
}

// joinPayloads concatenates the payloads, and records in the rows where each one is.
func joinPayloads(messages []Message, rows []enqueuedMessage) []byte {
	size := 0
	for i := range messages {
		size += len(messages[i].Payload)
	}
	if len(messages) == 1 && size > 0 { // no need to copy it
		rows[0].N, rows[0].At, rows[0].Size = 0, 0, size
		return messages[0].Payload
	}
	payloads := make([]byte, 0, size)
	for i := range messages {
		rows[i].N, rows[i].At, rows[i].Size = i, len(payloads), len(messages[i].Payload)
		payloads = append(payloads, messages[i].Payload...)
	}
	return payloads
}

// batchEnd returns the end of the batch that begins at from. Batches are limited in messages and in bytes, including headers,
// and have at least one message.
func batchEnd(messages []Message, from int) int {
	bytes, to := 0, from
	for to < len(messages) && to-from < maxBatch {
		bytes += messages[to].size()
		if bytes > maxBatchBytes && to > from {
			break
		}
		to++
	}
	return to
}

// size is the bytes of payload and headers.
func (m *Message) size() int {
	n := len(m.Payload)
	for key, value := range m.Headers {
		n += len(key) + len(value)
	}
	return n
}

// topicsOf also counts the messages of each.
func topicsOf(messages []Message) (topics []string, counts []int) {
	topics, counts = make([]string, 0, 1), make([]int, 0, 1)
	for i := range messages {
		at := slices.Index(topics, messages[i].Topic)
		if at < 0 {
			at, topics, counts = len(topics), append(topics, messages[i].Topic), append(counts, 0)
		}
		counts[at]++
	}
	return topics, counts
}

// isNil also reports true for a nil handle inside the interface, a common mistake.
func isNil(x Executor) bool {
	switch x := x.(type) {
	case nil:
		return true
	case *sql.DB:
		return x == nil
	case *sql.Tx:
		return x == nil
	case *sql.Conn:
		return x == nil
	default:
		return false
	}
}

// logs reports whether a line would be written, so that its fields need not be built for nothing.
func logs(logger watermill.LoggerAdapter) bool {
	_, nop := logger.(watermill.NopLogger)
	return !nop
}
