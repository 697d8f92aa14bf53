package base

import "errors"

// Headers of an event, which travel with it wherever it goes.
const (
	HeaderEventStream   = "outbox_event_stream"
	HeaderEventVersion  = "outbox_event_version"
	HeaderEventPosition = "outbox_event_position"

	// HeaderEventType is where Watermill's cqrs component keeps the name of a message's type.
	HeaderEventType = "name"
)

// The versions that an append may expect of its stream, besides those from 1 on.
const (
	AnyVersion   int64 = -2
	StreamExists int64 = -1
	NoStream     int64 = 0
)

// An Event is one to append. Without an ID it gets a new one.
type Event struct {
	ID            MessageID
	UUID          string
	Topic         string
	Payload       []byte
	Headers       map[string]string
	CorrelationID string
}

// Appended are the versions that an append gave to its events, or had given them before.
type Appended struct {
	First, Last int64
	Repeated    bool
}

// A VersionRefusal says that a stream does not have the expected version.
type VersionRefusal struct{ Actual int64 }

func (r *VersionRefusal) Error() string { return "the stream has another version" }

// ErrStreamArchived is returned for an append to an archived stream.
var ErrStreamArchived = errors.New("outbox: the event stream is archived, and takes no more events")
