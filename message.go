package outbox

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/engine"
	"github.com/incursa/watermill-outbox/internal/field"
)

// HeaderMessageID is the header that carries a message's MessageID outside its database.
const HeaderMessageID = "outbox_message_id"

// A Message is a message to enqueue.
type Message struct {
	// ID names the message for its whole life. Defaults to a new one, made when the message is enqueued.
	ID MessageID

	// UUID is Watermill's: any text of at most 255 UTF-16 units. It need not be unique, and may be empty.
	UUID string

	// Topic routes the message to its handler: 1 to 255 UTF-16 units, case-sensitive, without white space at either end.
	Topic string

	// Payload is delivered byte for byte. Nil means empty.
	Payload []byte

	// Headers are Watermill's metadata: any keys and values of valid UTF-8.
	Headers map[string]string

	// CorrelationID traces the message to its source. At most 255 UTF-16 units.
	// Defaults to the header correlation_id.
	CorrelationID string

	// StreamKey names the stream that the message belongs to: at most 255 UTF-16 units, without white space at either end.
	// Messages with the same topic and key are delivered in order, one at a time, each after those before it have ended: in
	// the order of commits, and within a transaction in the order of publishing. It is the record's key on Kafka. Defaults to
	// none.
	StreamKey string

	// DueAt is the time before which the message is not claimed, by the database's clock. Defaults to now.
	DueAt time.Time

	// Delay is how long the message waits from its insert on, by the database's clock. It excludes DueAt. Defaults to none.
	Delay time.Duration

	// ExpiresAt is the time from which on the message is not handled any more, by the database's clock: a Subscriber fails it
	// without spending an attempt. It travels as the header outbox_expires_at, a time in RFC 3339, also to brokers. Whoever calls
	// Claim compares it with Claimed.ClaimedAt; the log ignores it. It must be after DueAt, or after Delay has passed by this
	// process's clock. Defaults to that header, which may be any time, or to never.
	ExpiresAt time.Time
}

// A Receipt proves a claim: it is the row and the token it was claimed with. Every claim has its own token, so a receipt
// of an earlier claim settles nothing.
type Receipt struct {
	Seq   WorkItemID
	Owner OwnerToken
}

// A Claimed message is held under a lease by the owner of its Receipt.
type Claimed struct {
	Message
	Receipt Receipt

	// RetryCount is the number of attempts already spent on the message; this delivery is attempt RetryCount + 1.
	RetryCount int

	// CreatedAt is when the message was enqueued, by the database's clock.
	CreatedAt time.Time

	// ClaimedAt is when the message was claimed, by the database's clock.
	ClaimedAt time.Time

	// Stages are what has happened to the message, as bits: a middleware.StageSet, whose constants are in package middleware.
	Stages base.Stages

	// Malformed says why the row's headers could not be read, if something else changed them; Headers are then empty.
	// Fail such a message: its row stays as it is.
	Malformed error

	size int64 // of payload and headers in the row
}

// Status is the state of a message in the table.
type Status int

// The states of a message. Ready and InProgress are live; Done and Failed are final.
const (
	Ready      Status = 0
	InProgress Status = 1
	Done       Status = 2
	Failed     Status = 3
	Logged     Status = 4 // only in the log, see LogOnly
)

func (s Status) String() string {
	switch s {
	case Ready:
		return "ready"
	case InProgress:
		return "in progress"
	case Done:
		return "done"
	case Failed:
		return "failed"
	case Logged:
		return "logged"
	default:
		return fmt.Sprintf("status %d", int(s))
	}
}

// A Record is the whole state of a message in the table. Times are UTC, by the database's clock.
type Record struct {
	Message
	Seq           WorkItemID
	CreatedAt     time.Time
	RetryCount    int // attempts that another one followed: it does not count the last attempt of a failed message
	Status        Status
	NextAttemptAt time.Time
	LockedUntil   time.Time  // zero unless InProgress
	Owner         OwnerToken // zero unless InProgress
	LastError     string
	ProcessedAt   time.Time   // when it was done or failed; zero before
	ProcessedBy   string      // the worker that ended it
	Stages        base.Stages // what has happened to it: a middleware.StageSet, whose constants are in package middleware
	Malformed     error       // as in Claimed
}

// HeaderStreamKey is the header outbox_stream_key, which sets a message's StreamKey and carries it to brokers.
const HeaderStreamKey = base.HeaderStreamKey

// fromWatermill maps a Watermill message. Its delay headers set the due time. The absolute one has whole seconds: if both
// were made just now, the exact one counts. If the message was published before, the absolute one counts, so that it is not
// delayed again.
func fromWatermill(topic string, msg *message.Message) (Message, error) {
	m := Message{
		UUID:          msg.UUID,
		Topic:         topic,
		Payload:       msg.Payload,
		Headers:       msg.Metadata,
		CorrelationID: msg.Metadata[base.HeaderCorrelationID],
		StreamKey:     msg.Metadata[HeaderStreamKey],
	}
	return m, m.delay(msg.Metadata[delay.DelayedUntilKey], msg.Metadata[delay.DelayedForKey])
}

// delayHeaderAge is how long ago delay.For may have made both headers for the exact one to count.
const delayHeaderAge = 2 * time.Second

func (m *Message) delay(until, wait string) error {
	var due time.Time
	var exact time.Duration
	var err error
	if until != "" {
		if due, err = time.Parse(time.RFC3339, until); err != nil {
			return field.Bad("Metadata["+delay.DelayedUntilKey+"]", "is not an RFC 3339 time; set it with delay.Message")
		}
	}
	if wait != "" {
		if exact, err = time.ParseDuration(wait); err != nil && until == "" {
			return field.Bad("Metadata["+delay.DelayedForKey+"]", "is not a duration; set it with delay.Message")
		}
	}
	fresh := until == "" || wait != "" && err == nil && (exact-time.Until(due)).Abs() < delayHeaderAge
	if fresh {
		m.Delay = max(exact, 0)
	} else {
		m.DueAt = due
	}
	return nil
}

// toWatermill makes a new Watermill message: a message can be acked only once, so each delivery needs its own.
func (m *Message) toWatermill() *message.Message {
	msg := message.NewMessage(m.UUID, m.Payload)
	if m.Headers != nil {
		msg.Metadata = m.Headers
	}
	if m.CorrelationID != "" && msg.Metadata[base.HeaderCorrelationID] == "" {
		msg.Metadata[base.HeaderCorrelationID] = m.CorrelationID
	}
	return msg
}

// headersWithNUL returns the JSON text of headers that contain a NUL, or else nothing: such headers are sent as text,
// because the JSON functions of databases reject an escaped NUL.
func headersWithNUL(headers map[string]string) (string, error) {
	for key, value := range headers {
		if strings.IndexByte(key, 0) >= 0 || strings.IndexByte(value, 0) >= 0 {
			return engine.Encode(headers)
		}
	}
	return "", nil
}

// decodeHeaders reads the JSON text of a row; empty means no headers.
func decodeHeaders(text string) (map[string]string, error) {
	if text == "" {
		return nil, nil
	}
	var headers map[string]string
	if err := json.Unmarshal([]byte(text), &headers); err != nil {
		return nil, fmt.Errorf("decode the headers: %w", err)
	}
	return headers, nil
}
