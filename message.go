package outbox

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
)

// correlationHeader is where Watermill's correlation middleware keeps the id.
const correlationHeader = "correlation_id"

// HeaderMessageID is the header in which a message's MessageID travels outside of its database.
const HeaderMessageID = "outbox_message_id"

// A Message is what is enqueued: OutboxMessage of the specification as its writer sees it.
type Message struct {
	// ID names the message for its whole life. Defaults to a new one, made when the message is enqueued.
	ID MessageID

	// UUID is Watermill's: a free text, not unique, at most 255 UTF-16 units. May be empty.
	UUID string

	// Topic routes the message to its handler: 1 to 255 UTF-16 units, case-sensitive, no white space at an end (OBX-107).
	Topic string

	// Payload comes back byte for byte. Nil is taken for empty.
	Payload []byte

	// Headers are Watermill's metadata: any keys and values of valid UTF-8.
	Headers map[string]string

	// CorrelationID traces the message to its source, at most 255 UTF-16 units (OBX-109).
	// Defaults to the header correlation_id.
	CorrelationID string

	// StreamKey names the stream that the message belongs to: at most 255 UTF-16 units, no white space at an end. Messages of
	// one topic and key are delivered in order, one at a time, each when those before it have ended: in the order of commits,
	// and within a transaction in that of publishing. It is the record's key on Kafka. Defaults to none.
	StreamKey string

	// DueAt is the time before which the message is not claimed (OBX-006), by the database's clock. Defaults to now.
	DueAt time.Time

	// Delay is a due time relative to the database's clock at the insert. Not together with DueAt.
	Delay time.Duration
}

// A Receipt is the proof of a claim: the row and the token it was claimed with. Every claim has a token of its own, so
// a receipt of an earlier claim settles nothing.
type Receipt struct {
	Seq   WorkItemID
	Owner OwnerToken
}

// A Claimed message is held under a lease by whoever has its Receipt.
type Claimed struct {
	Message
	Receipt Receipt

	// RetryCount is the number of attempts already spent on the message; this delivery is attempt RetryCount + 1.
	RetryCount int

	// CreatedAt is when the message was enqueued, by the database's clock.
	CreatedAt time.Time

	// Malformed says why the row's headers could not be read, after a change from outside; Headers are then empty.
	// Fail such a message: it stays as it is.
	Malformed error

	size int64 // of payload and headers in the row
}

// Status is the state of a message in the table.
type Status int

// The states of a message. Ready and InProgress are live; Done and Failed are the ends.
const (
	Ready      Status = 0
	InProgress Status = 1
	Done       Status = 2
	Failed     Status = 3
	Logged     Status = 4 // for the log alone, see LogOnly
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
	RetryCount    int // attempts that another followed (OBX-030): of a failed message the last is not in it
	Status        Status
	NextAttemptAt time.Time
	LockedUntil   time.Time  // zero unless InProgress
	Owner         OwnerToken // zero unless InProgress
	LastError     string
	ProcessedAt   time.Time // when it was done or failed, else zero
	ProcessedBy   string    // the worker that ended it
	Malformed     error     // as in Claimed
}

// HeaderStreamKey is the header that sets a message's StreamKey.
const HeaderStreamKey = "outbox_stream_key"

// fromWatermill maps a Watermill message. Its delay headers set the due time. The absolute one has whole seconds: where both
// were made just now, the exact one counts. Of headers that were published before, the absolute one does, so that the
// message is not delayed again.
func fromWatermill(topic string, msg *message.Message) (Message, error) {
	m := Message{
		UUID:          msg.UUID,
		Topic:         topic,
		Payload:       msg.Payload,
		Headers:       msg.Metadata,
		CorrelationID: msg.Metadata[correlationHeader],
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
			return badField("Metadata["+delay.DelayedUntilKey+"]", "is not an RFC 3339 time; set it with delay.Message")
		}
	}
	if wait != "" {
		if exact, err = time.ParseDuration(wait); err != nil && until == "" {
			return badField("Metadata["+delay.DelayedForKey+"]", "is not a duration; set it with delay.Message")
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

// toWatermill makes a new Watermill message; ack state is one-shot, so each delivery has its own.
func (m *Message) toWatermill() *message.Message {
	msg := message.NewMessage(m.UUID, m.Payload)
	if m.Headers != nil {
		msg.Metadata = m.Headers
	}
	if m.CorrelationID != "" && msg.Metadata[correlationHeader] == "" {
		msg.Metadata[correlationHeader] = m.CorrelationID
	}
	return msg
}

// headersWithNUL is the JSON text of headers that contain a NUL, or empty: such headers travel as text, because JSON
// functions of databases refuse the escape of a NUL.
func headersWithNUL(headers map[string]string) (string, error) {
	for key, value := range headers {
		if strings.IndexByte(key, 0) >= 0 || strings.IndexByte(value, 0) >= 0 {
			return encodeArgument(headers)
		}
	}
	return "", nil
}

// decodeHeaders reads the JSON text of a row, in which a NUL is escaped; NULL is no headers.
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
