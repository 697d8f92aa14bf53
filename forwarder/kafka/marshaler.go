package kafka

import (
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kgo"

	outbox "github.com/incursa/watermill-outbox"
)

// HeaderUUID is the header of a record with the message's UUID, as in watermill-kafka.
const HeaderUUID = "_watermill_message_uuid"

// A Marshaler makes a record of a message. The topic and the partition are set for it.
type Marshaler interface {
	Marshal(topic string, msg *message.Message) (*kgo.Record, error)
}

// DefaultMarshaler reads and writes watermill-kafka's form of a message, with the stream key as record key.
//
// A message without a stream key has no key, and goes to any partition. An empty payload is an empty value, and not a
// tombstone. The record's timestamp is the time of publishing.
type DefaultMarshaler struct{}

var _ Marshaler = DefaultMarshaler{}

// Marshal returns an error for metadata with the name of the UUID's header.
func (DefaultMarshaler) Marshal(topic string, msg *message.Message) (*kgo.Record, error) {
	if _, taken := msg.Metadata[HeaderUUID]; taken {
		return nil, fmt.Errorf("metadata %s is reserved for the message's UUID", HeaderUUID)
	}
	record := &kgo.Record{Topic: topic, Value: msg.Payload, Headers: make([]kgo.RecordHeader, 0, len(msg.Metadata)+1)}
	if record.Value == nil {
		record.Value = []byte{}
	}
	record.Headers = append(record.Headers, kgo.RecordHeader{Key: HeaderUUID, Value: []byte(msg.UUID)})
	for name, value := range msg.Metadata {
		record.Headers = append(record.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
	}
	if key := msg.Metadata.Get(outbox.HeaderStreamKey); key != "" {
		record.Key = []byte(key)
	}
	return record, nil
}

// Unmarshal restores the message.
func (DefaultMarshaler) Unmarshal(record *kgo.Record) *message.Message {
	metadata, uuid := make(message.Metadata, len(record.Headers)), ""
	for _, h := range record.Headers {
		if h.Key == HeaderUUID {
			uuid = string(h.Value)
		} else {
			metadata[h.Key] = string(h.Value)
		}
	}
	msg := message.NewMessage(uuid, record.Value)
	msg.Metadata = metadata
	return msg
}
