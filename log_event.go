package outbox

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/engine"
	"github.com/incursa/watermill-outbox/internal/field"
)

// Events are messages of the log that have a version in a stream: see package eventstore.

// What opEventAppend answers.
const (
	eventsAppended = 1
	eventsRefused  = 2
	streamArchived = 3
	eventFound     = 4
)

type eventsArg struct {
	Stream   string            `json:"stream"`
	Expected int64             `json:"expected"`
	Count    int               `json:"count"`
	Named    bool              `json:"named"`
	Queued   bool              `json:"queued"`
	Events   []enqueuedMessage `json:"events"`
}

// An eventAnswer is a row of opEventAppend: what happened, or an event that is there already.
type eventAnswer struct {
	kind              int
	version           int64
	id, stream, topic string
	headers           string
	payload           []byte
}

// appendEvents appends messages to a stream of events, all or none, if it has the expected version. If all of them are there
// already, in this order, it is done. It returns a *base.VersionRefusal, base.ErrStreamArchived, or ErrDuplicateID if only
// some are there, or others under their ids; nothing is written then, and the caller's transaction can go on.
func (o *Outbox) appendEvents(ctx context.Context, x Executor, stream string, expected int64, messages []Message) (base.Appended, []MessageID, error) {
	if isNil(x) {
		return base.Appended{}, nil, base.ErrNilDB
	}
	if err := validateEventStream(stream); err != nil {
		return base.Appended{}, nil, err
	}
	if len(messages) == 0 {
		return base.Appended{}, nil, field.Bad("Events", "is empty; append at least one event")
	}
	messages = ofStream(stream, messages)
	rows, ids, err := o.prepare(messages)
	if err != nil {
		return base.Appended{}, nil, err
	}
	for i := range rows {
		if rows[i].UUID == "" {
			rows[i].UUID = rows[i].ID
		}
	}
	topics, counts := topicsOf(messages)
	started := time.Now()
	done, err := o.appendAll(ctx, x, eventsArg{Stream: stream, Expected: expected, Queued: o.config.Log != LogOnly, Events: rows}, messages)
	o.config.Hooks.published(PublishEvent{Store: o.config.Store, Topics: topics, Counts: counts, Messages: len(messages), Calls: 1, Took: time.Since(started), Err: err})
	if err != nil {
		return base.Appended{}, nil, err
	}
	if !done.Repeated {
		if logs(o.logger) {
			o.logger.Info("Appended events", watermill.LogFields{
				"topic": strings.Join(topics, ", "), "stream": stream, "version": done.Last, "correlation_id": rows[0].CorrelationID, "count": len(messages)})
		}
		o.wakeAfter(x, topics)
	}
	return done, ids, nil
}

func validateEventStream(stream string) error {
	if stream == "" {
		return field.Bad("Stream", "is empty; name the stream that the events belong to")
	}
	return field.Key("Stream", stream)
}

// ofStream returns copies that say which stream they belong to. What they say of themselves from another stream goes.
func ofStream(stream string, messages []Message) []Message {
	copies := slices.Clone(messages)
	for i := range copies {
		headers := make(map[string]string, len(copies[i].Headers)+1)
		maps.Copy(headers, copies[i].Headers)
		delete(headers, base.HeaderEventVersion)
		delete(headers, base.HeaderEventPosition)
		headers[base.HeaderEventStream] = stream
		copies[i].Headers = headers
	}
	return copies
}

// appendAll appends in batches. More than one needs its own transaction, or a savepoint in the caller's, and so do events
// with ids, which may be there under another stream's name.
func (o *Outbox) appendAll(ctx context.Context, x Executor, arg eventsArg, messages []Message) (done base.Appended, err error) {
	rows := arg.Events
	arg.Named = slices.ContainsFunc(messages, func(m Message) bool { return m.ID != MessageID{} })
	first := batchEnd(messages, 0)
	if len(messages) == 1 && !arg.Named && !arg.Queued {
		version, err := o.appendOne(ctx, x, arg, &messages[0])
		if err != nil || version > 0 {
			return base.Appended{First: version, Last: version}, err
		}
	}
	if first == len(messages) && (engine.Ours(x) || !arg.Named) {
		return o.appendBatch(ctx, x, arg, messages)
	}
	err = o.inTx(ctx, x, func(ctx context.Context, x Executor) error {
		batch := arg
		done = base.Appended{}
		for from, to := 0, first; from < len(rows); from, to = to, batchEnd(messages, to) {
			batch.Events = rows[from:to]
			next, err := o.appendBatch(ctx, x, batch, messages[from:to])
			switch {
			case err != nil:
				return err
			case from == 0:
				done = next
			case next.Repeated != done.Repeated || next.First != done.Last+1:
				return fmt.Errorf("append to the stream %q: %w", arg.Stream, ErrDuplicateID)
			default:
				done.Last = next.Last
			}
			if !done.Repeated {
				batch.Expected = done.Last
			}
		}
		return nil
	})
	return done, err
}

// appendOne appends an event to a stream that exists and has the expected version. Otherwise it returns 0; appendBatch knows why.
func (o *Outbox) appendOne(ctx context.Context, x Executor, arg eventsArg, m *Message) (version int64, err error) {
	row := &arg.Events[0]
	headers, err := row.headersText()
	if err != nil {
		return 0, err
	}
	payload := m.Payload
	if payload == nil {
		payload = []byte{} // the column is NOT NULL
	}
	args := []any{arg.Stream, arg.Expected, row.ID, row.UUID, row.Topic, row.TopicKey, payload, headers, optional(row.CorrelationID),
		optional(row.StreamKey), sql.NullInt64{Int64: row.StreamID, Valid: row.StreamID != 0}}
	versions, err := engine.CallWith(ctx, o.engine, x, opEventAppendOne, args, func(rows *sql.Rows, v *int64) error { return rows.Scan(v) })
	if err != nil || len(versions) == 0 {
		return 0, err
	}
	return versions[0], nil
}

func (o *Outbox) appendBatch(ctx context.Context, x Executor, arg eventsArg, messages []Message) (base.Appended, error) {
	arg.Count = len(messages)
	answers, err := engine.Call(ctx, o.engine, x, opEventAppend, arg, joinPayloads(messages, arg.Events), func(rows *sql.Rows, a *eventAnswer) error {
		return rows.Scan(&a.kind, &a.version, &a.id, &a.stream, &a.topic, &a.headers, &a.payload)
	})
	if err != nil {
		return base.Appended{}, err
	}
	found := map[string]*eventAnswer{}
	for i := range answers {
		switch a := &answers[i]; a.kind {
		case eventsAppended:
			return base.Appended{First: a.version - int64(len(messages)) + 1, Last: a.version}, nil
		case eventFound:
			found[strings.ToLower(a.id)] = a
		}
	}
	switch {
	case len(found) > 0:
		return repeated(arg, messages, found)
	case len(answers) == 1 && answers[0].kind == streamArchived:
		return base.Appended{}, fmt.Errorf("append to the stream %q: %w", arg.Stream, base.ErrStreamArchived)
	case len(answers) == 1 && answers[0].kind == eventsRefused:
		return base.Appended{}, &base.VersionRefusal{Actual: answers[0].version}
	default:
		return base.Appended{}, fmt.Errorf("append to the stream %q: the database gave %d answers", arg.Stream, len(answers))
	}
}

// repeated says that events were appended before, if the ones that were found are these: one after the other, in this stream.
func repeated(arg eventsArg, messages []Message, found map[string]*eventAnswer) (done base.Appended, err error) {
	for i := range messages {
		there := found[arg.Events[i].ID]
		if there == nil || there.stream != arg.Stream || i > 0 && there.version != done.Last+1 {
			return base.Appended{}, fmt.Errorf("append to the stream %q, where only some of the events are, or not in this order: %w", arg.Stream, ErrDuplicateID)
		}
		headers, err := decodeHeaders(there.headers)
		if err != nil {
			return base.Appended{}, err
		}
		if there.topic != messages[i].Topic || headers[base.HeaderEventType] != messages[i].Headers[base.HeaderEventType] || !bytes.Equal(there.payload, messages[i].Payload) {
			return base.Appended{}, fmt.Errorf("append to the stream %q, where another event has the id %s: %w", arg.Stream, there.id, ErrDuplicateID)
		}
		if i == 0 {
			done.First = there.version
		}
		done.Last = there.version
	}
	done.Repeated = true
	return done, nil
}
