package amqp

import (
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"
	amqp091 "github.com/rabbitmq/amqp091-go"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/base"
)

// headerUUID is the header in which watermill-amqp's DefaultMarshaler puts the UUID.
const headerUUID = "_watermill_message_uuid"

// newPublishing returns an error for a message that no broker could accept.
func newPublishing(msg *message.Message, maxPayload int) (amqp091.Publishing, error) {
	if maxPayload > 0 && len(msg.Payload) > maxPayload {
		return amqp091.Publishing{}, unfit("its payload has %d bytes; %d are allowed (Config.MaxPayload)", len(msg.Payload), maxPayload)
	}
	headers := make(amqp091.Table, len(msg.Metadata)+1)
	for name, value := range msg.Metadata {
		if len(name) > maxShort {
			return amqp091.Publishing{}, unfit("the name of a header has %d bytes; AMQP allows %d", len(name), maxShort)
		}
		headers[name] = value
	}
	headers[headerUUID] = msg.UUID

	id := msg.Metadata[outbox.HeaderMessageID]
	if id == "" {
		id = msg.UUID
	}
	return amqp091.Publishing{
		Headers:       headers,
		DeliveryMode:  amqp091.Persistent,
		MessageId:     short(id),
		CorrelationId: short(msg.Metadata[base.HeaderCorrelationID]),
		Body:          msg.Payload,
	}, nil
}

// short is as much as fits into a property; the headers have the whole text.
func short(s string) string {
	if len(s) > maxShort {
		return ""
	}
	return s
}

// fitsFrame checks that the headers fit into one frame; otherwise the broker would close the connection.
func fitsFrame(p amqp091.Publishing, frameSize int) error {
	const frame, fixed = 8, 2 + 2 + 8 + 2 + 1 + 4 // around a frame; class, weight, body size, flags, delivery mode, table length
	size := frame + fixed + 1 + len(p.MessageId) + 1 + len(p.CorrelationId)
	for name, value := range p.Headers {
		size += 1 + len(name) + 1 + 4
		if text, ok := value.(string); ok {
			size += len(text)
		}
	}
	if frameSize > 0 && size > frameSize {
		return unfit("its headers take %d bytes; the broker allows %d (frame_max)", size, frameSize)
	}
	return nil
}

func unfit(format string, args ...any) error {
	return outbox.Permanent(fmt.Errorf("amqp: the message cannot be published: "+format, args...))
}
