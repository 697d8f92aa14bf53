package eventstore

import (
	"cmp"
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/base"
)

// Headers of an event as a message. HeaderType is also that of Watermill's cqrs component.
const (
	HeaderType      = base.HeaderEventType
	HeaderStream    = base.HeaderEventStream
	HeaderVersion   = base.HeaderEventVersion
	HeaderPosition  = base.HeaderEventPosition // not before it was read from the log
	HeaderCausation = "causation_id"
)

// An Event is what happened, as it is appended and as it is read.
type Event struct {
	// ID names the event. With IDs of your own, an append can be repeated: it is done once. Defaults to a new one.
	ID outbox.MessageID

	// Type says what happened: any text. It travels in HeaderType.
	Type string

	// Topic is what consumer groups subscribe to. Defaults to Config.Topic.
	Topic string

	// Payload is stored byte for byte.
	Payload []byte

	// CorrelationID traces the event to its source; CausationID is that of the message that caused it.
	CorrelationID, CausationID string

	// Metadata is anything else: keys and values of valid UTF-8. The headers above are not in it.
	Metadata map[string]string

	// Stream and Version are where it was stored, and StoredAt when, by the database's clock. Position is its place in the log,
	// and 0 when it was read from its stream. All are set by reading, and ignored by Append.
	Stream            string
	Version, Position int64
	StoredAt          time.Time

	uuid string // Watermill's; that of the ID for an event that was not published
}

// Message returns the event as a Watermill message, as it is delivered to a consumer group.
func (e *Event) Message() *message.Message {
	msg := message.NewMessage(cmp.Or(e.uuid, e.ID.String()), e.Payload)
	maps.Copy(msg.Metadata, e.Metadata)
	set := func(header, value string) {
		if value != "" {
			msg.Metadata[header] = value
		}
	}
	setNumber := func(header string, value int64) {
		if value != 0 {
			msg.Metadata[header] = strconv.FormatInt(value, 10)
		}
	}
	set(HeaderType, e.Type)
	set(base.HeaderCorrelationID, e.CorrelationID)
	set(HeaderCausation, e.CausationID)
	set(outbox.HeaderMessageID, e.ID.String())
	set(HeaderStream, e.Stream)
	setNumber(HeaderVersion, e.Version)
	setNumber(HeaderPosition, e.Position)
	return msg
}

// stored is the event as it is written.
func (s *Store) stored(e *Event) base.Event {
	headers := maps.Clone(e.Metadata)
	if headers == nil {
		headers = map[string]string{}
	}
	delete(headers, outbox.HeaderMessageID)
	for header, value := range map[string]string{HeaderType: e.Type, HeaderCausation: e.CausationID, base.HeaderCorrelationID: e.CorrelationID} {
		if value != "" {
			headers[header] = value
		}
	}
	return base.Event{
		ID: e.ID, UUID: e.uuid, Topic: cmp.Or(e.Topic, s.config.Topic), Payload: e.Payload, Headers: headers, CorrelationID: e.CorrelationID}
}

// scan reads a row of an operation, and returns the version at which its stream ends.
func (e *Event) scan(rows *sql.Rows) (last int64, err error) {
	var id string
	var headers, correlation sql.NullString
	var created int64
	if err := rows.Scan(&e.Stream, &e.Version, &e.Position, &id, &e.uuid, &e.Topic, &e.Payload, &headers, &correlation, &created, &last); err != nil {
		return 0, err
	}
	if id == "" { // not an event
		return last, nil
	}
	if e.ID, err = outbox.ParseMessageID(id); err != nil {
		return 0, err
	}
	e.StoredAt = time.UnixMilli(created).UTC()
	if headers.String != "" {
		if err := json.Unmarshal([]byte(headers.String), &e.Metadata); err != nil {
			return 0, fmt.Errorf("decode the headers of version %d of the stream %q: %w", e.Version, e.Stream, err)
		}
	}
	e.Type, e.CausationID, e.CorrelationID = e.Metadata[HeaderType], e.Metadata[HeaderCausation], correlation.String
	for _, header := range []string{HeaderType, HeaderCausation, base.HeaderCorrelationID, HeaderStream, HeaderVersion, HeaderPosition} {
		delete(e.Metadata, header)
	}
	if len(e.Metadata) == 0 {
		e.Metadata = nil
	}
	return last, nil
}
