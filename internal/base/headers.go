package base

// Headers that more than one package reads or writes.
const (
	// HeaderStreamKey is documented as outbox.HeaderStreamKey.
	HeaderStreamKey = "outbox_stream_key"

	// HeaderCorrelationID is that of Watermill's correlation middleware.
	HeaderCorrelationID = "correlation_id"
)
