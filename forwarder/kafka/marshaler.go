package kafka

import (
	"github.com/IBM/sarama"
	wkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/incursa/watermill-outbox/forwarder"
)

// Marshaler is watermill-kafka's form of a message, with the stream key as record key. It reads and writes.
//
// A message without a stream key has no key, and goes to any partition. (watermill-kafka's own partitioning marshaler gives
// it an empty one, and all of these to one partition.) An empty payload is an empty value, and not a tombstone.
type Marshaler struct{ wkafka.DefaultMarshaler }

// Marshal refuses metadata of the name that watermill-kafka has for the UUID.
func (m Marshaler) Marshal(topic string, msg *message.Message) (*sarama.ProducerMessage, error) {
	record, err := m.DefaultMarshaler.Marshal(topic, msg)
	if err != nil {
		return nil, err
	}
	if len(msg.Payload) == 0 {
		record.Value = sarama.ByteEncoder{}
	}
	if key := msg.Metadata.Get(forwarder.HeaderStreamKey); key != "" {
		record.Key = sarama.StringEncoder(key)
	}
	return record, nil
}
