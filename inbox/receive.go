package inbox

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/field"
)

// An Identity says how a Watermill message is recognized.
type Identity struct {
	// Source is where the messages come from. Either it or SourceFrom is required.
	Source string

	// SourceFrom finds the source of each message. Defaults to Source for all.
	SourceFrom func(*message.Message) string

	// Handler is the handler they are for. Defaults to the name of the router's handler.
	Handler string

	// MessageID returns a message's id at its source. Defaults to the header outbox.HeaderMessageID, which the forwarder
	// sets, or without that to the message's UUID, or without a UUID to the id under which an outbox delivers the message.
	MessageID func(*message.Message) string

	// Hash tells different contents apart; what it returns is taken as it is, zero too. Defaults to the SHA-256 of the payload.
	Hash func(*message.Message) Hash
}

// Validate returns an *outbox.FieldError that names what is wrong with the Identity itself.
func (i Identity) Validate() error {
	switch {
	case i.Source == "" && i.SourceFrom == nil:
		return field.Bad("Identity.Source", "is empty; say where the messages come from, with it or with SourceFrom")
	case i.Source != "" && i.SourceFrom != nil:
		return field.Bad("Identity.SourceFrom", "and Source are both set; set one of them")
	}
	known := Key{Source: "source", MessageID: "id", Handler: "handler"} // with fixed values for what the message supplies
	if i.Source != "" {
		known.Source = i.Source
	}
	if i.Handler != "" {
		known.Handler = i.Handler
	}
	return known.validate()
}

// Of returns the key and the hash of a message. If the message has no usable key, the error is permanent
// (outbox.IsPermanent).
func (i Identity) Of(msg *message.Message) (Key, Hash, error) {
	key := Key{Source: i.Source, MessageID: msg.Metadata[outbox.HeaderMessageID], Handler: i.Handler}
	if i.SourceFrom != nil {
		key.Source = i.SourceFrom(msg)
	}
	if key.Handler == "" {
		key.Handler = message.HandlerNameFromCtx(msg.Context())
	}
	if i.MessageID != nil {
		key.MessageID = i.MessageID(msg)
	} else if key.MessageID = cmp.Or(key.MessageID, msg.UUID, deliveredAs(msg)); key.MessageID == "" {
		return Key{}, Hash{}, errNoID
	}
	if err := key.validate(); err != nil {
		return Key{}, Hash{}, outbox.Permanent(fmt.Errorf("identify the message: %w", err))
	}
	if i.Hash != nil {
		return key, i.Hash(msg), nil
	}
	return key, HashOf(msg.Payload), nil
}

// deliveredAs is the id of a message in the outbox that delivers it, if one does.
func deliveredAs(msg *message.Message) string {
	if delivery, ok := outbox.DeliveryFrom(msg.Context()); ok {
		return delivery.MessageID().String()
	}
	return ""
}

var errNoID = outbox.Permanent(fmt.Errorf("identify the message: %w", field.Bad("Key.MessageID",
	"is empty: the message has no UUID and no header %s; publish it with a UUID, or set Identity.MessageID",
	outbox.HeaderMessageID)))

// Receive returns a handler, for any Watermill router, that puts each message into the queue, on a topic named after its
// handler, and acknowledges it. UUID, metadata and payload stay as they are, and the header outbox.HeaderStreamKey sets the
// StreamKey. It returns an *outbox.FieldError for a bad Identity.
//
// A message that the queue can never take, such as one whose metadata is not valid UTF-8, is a permanent error
// (outbox.IsPermanent), as other content under a known key is: put Watermill's poison queue before the handler, or a broker may
// deliver such a message without end.
//
//	router.AddConsumerHandler("receive-orders", "orders", rabbitmq, receive)
func (in *Inbox) Receive(identity Identity) (message.NoPublishHandlerFunc, error) {
	if err := identity.Validate(); err != nil {
		return nil, err
	}
	return func(msg *message.Message) error {
		key, hash, err := identity.Of(msg)
		if err != nil {
			return err
		}
		_, err = in.enqueue(msg.Context(), in.db, []Received{{
			Key: key, Hash: hash, Message: outbox.Message{
				UUID: msg.UUID, Payload: msg.Payload, Headers: msg.Metadata, StreamKey: msg.Metadata[outbox.HeaderStreamKey]}}})
		if bad := new(outbox.FieldError); errors.As(err, &bad) {
			return outbox.Permanent(err)
		}
		return err
	}, nil
}
