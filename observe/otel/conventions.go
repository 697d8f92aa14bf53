package otel

import "go.opentelemetry.io/otel/attribute"

// Names of OpenTelemetry's conventions for messaging, as of August 2026; their status is development.
const (
	system           = attribute.Key("messaging.system")
	operationName    = attribute.Key("messaging.operation.name")
	operationType    = attribute.Key("messaging.operation.type")
	destinationName  = attribute.Key("messaging.destination.name")
	messageID        = attribute.Key("messaging.message.id")
	conversationID   = attribute.Key("messaging.message.conversation_id")
	bodySize         = attribute.Key("messaging.message.body.size")
	batchCount       = attribute.Key("messaging.batch.message_count")
	consumerGroup    = attribute.Key("messaging.consumer.group.name")
	errorType        = attribute.Key("error.type")
	errorTypeUnknown = "_OTHER"
)

// Names of our own.
const (
	scope   = "github.com/incursa/watermill-outbox/observe/otel"
	store   = attribute.Key("outbox.store")
	attempt = attribute.Key("outbox.delivery.attempt")
	refused = attribute.Key("outbox.settle.refused")
)

// An operation has a name, which begins that of its spans, and a type.
type operation struct{ name, kind string }

var (
	create  = operation{"create", "create"}
	send    = operation{"send", "send"}
	receive = operation{"receive", "receive"}
	process = operation{"process", "process"}
	settle  = operation{"settle", "settle"}
)
