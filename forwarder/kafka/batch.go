package kafka

import (
	"errors"
	"fmt"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
)

// A batch is the messages of one Publish and what became of each, by its place in the call.
type batch struct {
	topic   string
	records []*sarama.ProducerMessage
	errs    []error
	pending []int // what may still get through
	single  bool  // to be sent one by one, by a producer that nobody else uses
}

func newBatch(topic string, messages []*message.Message) *batch {
	b := &batch{topic: topic, records: make([]*sarama.ProducerMessage, len(messages)), errs: make([]error, len(messages))}
	for i, msg := range messages {
		record, err := Marshaler{}.Marshal(topic, msg)
		if err != nil {
			b.errs[i] = outbox.Permanent(err)
			continue
		}
		record.Metadata = i
		b.records[i] = record
		b.pending = append(b.pending, i)
	}
	return b
}

// failAll notes one reason for all that is pending.
func (b *batch) failAll(err error) {
	if refused(err) {
		err = outbox.Permanent(err)
	}
	for _, i := range b.pending {
		b.errs[i] = err
	}
}

// send sends what is pending. It answers how many messages got through, whether the producer is still good, and whether
// there are messages whose error may be another's.
func (b *batch) send(producer *producer) (through int, broken, doubtful bool) {
	var failures map[int]error
	if b.single {
		failures = b.sendSingly(producer)
	} else {
		failures = b.sendTogether(producer)
	}
	var left []int
	for _, i := range b.pending {
		err := failures[i]
		broken = broken || err != nil && !refused(err)
		switch {
		case err == nil:
			b.errs[i] = nil
			through++
		case ofBatch(err) && !b.single: // also of one message: others may publish to the same partition
			b.errs[i] = err
			left = append(left, i)
			doubtful = true
		case refused(err):
			b.errs[i] = outbox.Permanent(fmt.Errorf("publish to Kafka: %w", err))
		default:
			b.errs[i] = fmt.Errorf("publish to Kafka: %w", err)
			left = append(left, i)
		}
	}
	b.pending, b.single = left, b.single || doubtful
	return through, broken, doubtful
}

func (b *batch) sendTogether(producer *producer) map[int]error {
	records := make([]*sarama.ProducerMessage, len(b.pending))
	for n, i := range b.pending {
		records[n] = b.records[i]
	}
	return producer.send(b.topic, records)
}

// sendSingly ends with the first message that is not refused and does not get through: it is not that message's fault.
func (b *batch) sendSingly(producer *producer) map[int]error {
	failures := map[int]error{}
	for n, i := range b.pending {
		err := producer.send(b.topic, b.records[i:i+1])[i]
		if err == nil {
			continue
		}
		failures[i] = err
		if !refused(err) {
			for _, rest := range b.pending[n+1:] {
				failures[rest] = err
			}
			break
		}
	}
	return failures
}

// refused is true of errors that no retry mends.
func refused(err error) bool {
	return ofBatch(err) || errors.Is(err, errTooLarge) ||
		errors.Is(err, sarama.ErrInvalidTopic) || errors.Is(err, sarama.ErrTopicAuthorizationFailed)
}

// ofBatch is true of errors that a message brings upon all that are sent to its partition with it.
func ofBatch(err error) bool {
	var notEncoded sarama.PacketEncodingError
	return errors.As(err, &notEncoded) ||
		errors.Is(err, sarama.ErrMessageSizeTooLarge) || errors.Is(err, sarama.ErrMessageSetSizeTooLarge) ||
		errors.Is(err, sarama.ErrInvalidRecord) || errors.Is(err, sarama.ErrInvalidTimestamp)
}

// ofTopic is true of answers about a topic, which say that the connection works.
func ofTopic(err error) bool {
	return errors.Is(err, sarama.ErrUnknownTopicOrPartition) || errors.Is(err, sarama.ErrInvalidTopic) ||
		errors.Is(err, sarama.ErrTopicAuthorizationFailed)
}
