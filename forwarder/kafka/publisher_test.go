package kafka_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	wkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/forwarder"
	"github.com/incursa/watermill-outbox/forwarder/kafka"
)

func newMessage(payload string, metadata ...string) *message.Message {
	msg := message.NewMessage(watermill.NewUUID(), []byte(payload))
	for i := 0; i < len(metadata); i += 2 {
		msg.Metadata[metadata[i]] = metadata[i+1]
	}
	return msg
}

func newMessages(n int, metadata ...string) []*message.Message {
	messages := make([]*message.Message, n)
	for i := range messages {
		messages[i] = newMessage(fmt.Sprint(i), metadata...)
	}
	return messages
}

// each returns the error of each message of a Publish that failed.
func each(t *testing.T, err error, n int) []error {
	t.Helper()
	var batch *forwarder.BatchError
	require.ErrorAs(t, err, &batch)
	require.Len(t, batch.Errs, n)
	return batch.Errs
}

func everyByte() string {
	bytes := make([]byte, 256)
	for i := range bytes {
		bytes[i] = byte(i)
	}
	return string(bytes)
}

func TestARecordHasTheBytesTheHeadersAndTheKey(t *testing.T) {
	forEachServer(t, func(t *testing.T, s *server) {
		topic := s.createTopic(1)
		sent := []*message.Message{
			newMessage(everyByte(), "a", "1", "empty", "", "ключ", "значение", forwarder.HeaderStreamKey, "order-7"),
			newMessage("", forwarder.HeaderStreamKey, "ключ"),
			newMessage("without a key"),
		}
		s.NoError(s.newPublisher().Publish(topic, sent...))

		records := s.read(topic, len(sent))
		s.Len(records, len(sent))
		for i, record := range records {
			s.Equal(sent[i].UUID, header(record, uuidHeader))
			s.NotNil(record.Value, "no value at all is a tombstone")
			s.Equal([]byte(sent[i].Payload), append([]byte{}, record.Value...))
			metadata := message.Metadata{}
			for _, h := range record.Headers {
				if h.Key != uuidHeader {
					metadata[h.Key] = string(h.Value)
				}
			}
			s.Equal(sent[i].Metadata, metadata)
		}
		s.Equal("order-7", string(records[0].Key))
		s.Equal("ключ", string(records[1].Key))
		s.Nil(records[2].Key)
	})
}

// Watermill-kafka's publisher with our configuration writes the same records.
func TestWatermillsOwnSubscriberReadsThem(t *testing.T) {
	forEachServer(t, func(t *testing.T, s *server) {
		topic := s.createTopic(1)
		config := kafka.WatermillConfig(s.brokers)
		theirs, err := wkafka.NewPublisher(config, nil)
		s.NoError(err)
		sent := []*message.Message{
			newMessage("ours", "a", "1", forwarder.HeaderStreamKey, "k"),
			newMessage("theirs", "b", "2", forwarder.HeaderStreamKey, "k"),
		}
		s.NoError(s.newPublisher().Publish(topic, sent[0]))
		s.NoError(theirs.Publish(topic, sent[1]))
		s.NoError(theirs.Close())

		reading := wkafka.DefaultSaramaSubscriberConfig()
		reading.Consumer.Offsets.Initial = sarama.OffsetOldest
		subscriber, err := wkafka.NewSubscriber(wkafka.SubscriberConfig{
			Brokers: s.brokers, Unmarshaler: kafka.Marshaler{}, OverwriteSaramaConfig: reading,
		}, watermill.NopLogger{})
		s.NoError(err)
		received, err := subscriber.Subscribe(s.context(), topic)
		s.NoError(err)
		for _, want := range sent {
			got := <-received
			s.True(got.Equals(want), "%v is not %v", got, want)
			got.Ack()
		}
		s.NoError(subscriber.Close())
		for _, record := range s.read(topic, 2) {
			s.Equal("k", string(record.Key))
		}
	})
}

// Its producer must not be idempotent: sarama's then loses messages, dozens in this test.
func TestWatermillsOwnPublisherLosesNothingEither(t *testing.T) {
	s := newFake(t, kfake.NumBrokers(2))
	topic := s.createTopic(2)
	config := kafka.WatermillConfig(s.brokers)
	config.OverwriteSaramaConfig.Producer.Retry.Max = 2
	config.OverwriteSaramaConfig.Producer.Retry.Backoff = time.Millisecond
	publisher, err := wkafka.NewPublisher(config, nil)
	s.NoError(err)
	s.disturb()
	const publishers, size = 6, 100
	var all sync.WaitGroup
	for range publishers {
		all.Go(func() {
			for _, msg := range newMessages(size) {
				deadline := time.Now().Add(patience)
				for err := publisher.Publish(topic, msg); err != nil; err = publisher.Publish(topic, msg) {
					if time.Now().After(deadline) {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	all.Wait()
	s.NoError(publisher.Close())
	s.read(topic, publishers*size)
}

// Many goroutines publish at once, each the messages of streams of its own.
func TestAStreamStaysInOnePartitionAndInOrder(t *testing.T) {
	forEachServer(t, func(t *testing.T, s *server) {
		const publishers, streams, batches, size = 4, 5, 10, 40
		topic := s.createTopic(6)
		publisher := s.newPublisher()
		var all sync.WaitGroup
		errs := make([]error, publishers)
		for p := range publishers {
			all.Go(func() {
				n := 0
				for range batches {
					var batch []*message.Message
					for range size {
						batch = append(batch, newMessage(fmt.Sprint(n/streams), forwarder.HeaderStreamKey, fmt.Sprintf("%d-%d", p, n%streams)))
						n++
					}
					errs[p] = errors.Join(errs[p], publisher.Publish(topic, batch...))
				}
			})
		}
		all.Wait()
		s.NoError(errors.Join(errs...))

		records := s.read(topic, publishers*batches*size)
		s.Len(records, publishers*batches*size, "nothing failed, so nothing is there twice")
		s.Greater(len(inOrder(t, records)), 1, "the streams should be spread over the partitions")
	})
}

// inOrder checks that each stream is in one partition, its payloads 0, 1, 2 and so on, and returns the partitions.
func inOrder(t *testing.T, records []*kgo.Record) map[int32]bool {
	t.Helper()
	partitions, partition, next := map[int32]bool{}, map[string]int32{}, map[string]int{}
	for _, record := range records {
		key := string(record.Key)
		if next[key] == 0 {
			partition[key] = record.Partition
		}
		require.Equal(t, partition[key], record.Partition, "the stream %s should be in one partition", key)
		require.Equal(t, fmt.Sprint(next[key]), string(record.Value), "the stream %s should be in order", key)
		next[key]++
		partitions[record.Partition] = true
	}
	return partitions
}

func TestMessagesWithoutAStreamAreSpread(t *testing.T) {
	forEachServer(t, func(t *testing.T, s *server) {
		topic := s.createTopic(4)
		s.NoError(s.newPublisher().Publish(topic, newMessages(200)...))
		partitions := map[int32]int{}
		for _, record := range s.read(topic, 200) {
			partitions[record.Partition]++
		}
		s.Len(partitions, 4)
	})
}

// The broker refuses the whole batch. Those that are not at fault arrive.
func TestOnlyTheMessageThatIsTooLargeIsRefused(t *testing.T) {
	for name, size := range map[string]int{"for the topic": 20_000, "for the client": 2_000_000} {
		t.Run(name, func(t *testing.T) {
			forEachServer(t, func(t *testing.T, s *server) {
				topic := s.createTopic(2, "max.message.bytes", "10000")
				messages := newMessages(20)
				messages[7].Payload = []byte(strings.Repeat("x", size))
				messages[19].Payload = messages[7].Payload
				errs := each(t, s.newPublisher().Publish(topic, messages...), len(messages))
				for i, err := range errs {
					if i == 7 || i == 19 {
						s.True(outbox.IsPermanent(err), "%v", err)
						s.ErrorContains(err, "arge")
					} else {
						s.NoError(err)
					}
				}
				s.Len(s.read(topic, 18), 18)
			})
		})
	}
}

func TestMetadataOfTheReservedNameIsRefused(t *testing.T) {
	forEachServer(t, func(t *testing.T, s *server) {
		topic := s.createTopic(1)
		messages := newMessages(3)
		messages[1].Metadata[uuidHeader] = "mine"
		errs := each(t, s.newPublisher().Publish(topic, messages...), 3)
		s.NoError(errs[0])
		s.True(outbox.IsPermanent(errs[1]))
		s.ErrorContains(errs[1], uuidHeader)
		s.NoError(errs[2])
		s.Len(s.read(topic, 2), 2)
	})
}

func TestATopicThatIsMissingIsWaitedFor(t *testing.T) {
	forEachServer(t, func(t *testing.T, s *server) {
		if s.fake == nil {
			t.Skip("a real broker may create topics by itself")
		}
		topic, publisher, messages := topicName(), s.newPublisher(), newMessages(50)
		for _, err := range each(t, publisher.Publish(topic, messages...), 50) {
			s.ErrorIs(err, sarama.ErrUnknownTopicOrPartition)
			s.False(outbox.IsPermanent(err))
		}
		s.create(topic, 1)
		s.NoError(publisher.Publish(topic, messages...))
		s.Len(s.read(topic, 50), 50)
	})
}

func TestWhatTheBrokerSaysDecides(t *testing.T) {
	for _, c := range []struct {
		code      *kerr.Error
		permanent bool
	}{
		{kerr.InvalidTopicException, true},
		{kerr.TopicAuthorizationFailed, true},
		{kerr.MessageTooLarge, true},
		{kerr.InvalidRecord, true},
		{kerr.InvalidTimestamp, true},
		{kerr.NotLeaderForPartition, false},
		{kerr.LeaderNotAvailable, false},
		{kerr.NotEnoughReplicas, false},
		{kerr.NotEnoughReplicasAfterAppend, false},
		{kerr.RequestTimedOut, false},
		{kerr.OutOfOrderSequenceNumber, false},
		{kerr.InvalidProducerEpoch, false},
		{kerr.ClusterAuthorizationFailed, false},
		{kerr.KafkaStorageError, false},
		{kerr.UnknownServerError, false},
	} {
		t.Run(c.code.Message, func(t *testing.T) {
			s := newFake(t, kfake.NumBrokers(1))
			topic := s.createTopic(1)
			publisher := s.newPublisher(func(c *kafka.Config) {
				c.Sarama = kafka.SaramaConfig()
				c.Sarama.Producer.Retry.Max = 1
			})
			s.answerProduce(func(int32) *kerr.Error { return c.code })
			err := publisher.Publish(topic, newMessages(10)...)
			s.ErrorIs(err, sarama.KError(c.code.Code))
			for _, err := range each(t, err, 10) {
				s.Error(err)
				s.Equal(c.permanent, outbox.IsPermanent(err), "%v", err)
			}
		})
	}
}

// answerProduce answers what is produced with errors, as long as the function has one for a partition; from any other
// partition on, the fake takes the whole request.
func (s *server) answerProduce(code func(partition int32) *kerr.Error) {
	s.fake.ControlKey(int16(kmsg.Produce), func(request kmsg.Request) (kmsg.Response, error, bool) {
		s.fake.KeepControl()
		produce, ok := request.(*kmsg.ProduceRequest)
		if !ok {
			return nil, errors.New("not a produce request"), true
		}
		response, ok := produce.ResponseKind().(*kmsg.ProduceResponse)
		if !ok {
			return nil, errors.New("not a produce response"), true
		}
		for _, topic := range produce.Topics {
			answer := kmsg.NewProduceResponseTopic()
			answer.Topic = topic.Topic
			for _, partition := range topic.Partitions {
				answered := kmsg.NewProduceResponseTopicPartition()
				answered.Partition = partition.Partition
				err := code(partition.Partition)
				if err == nil {
					return nil, nil, false
				}
				answered.ErrorCode = err.Code
				answer.Partitions = append(answer.Partitions, answered)
			}
			response.Topics = append(response.Topics, answer)
		}
		return response, nil, true
	})
}

func TestWhatTheBrokerSaysOfATopicDecides(t *testing.T) {
	for _, code := range []*kerr.Error{kerr.InvalidTopicException, kerr.TopicAuthorizationFailed} {
		t.Run(code.Message, func(t *testing.T) {
			s := newFake(t, kfake.NumBrokers(1))
			s.fake.ControlKey(int16(kmsg.Metadata), func(request kmsg.Request) (kmsg.Response, error, bool) {
				s.fake.KeepControl()
				asked, ok := request.(*kmsg.MetadataRequest)
				if !ok || len(asked.Topics) == 0 {
					return nil, nil, false
				}
				response, ok := asked.ResponseKind().(*kmsg.MetadataResponse)
				if !ok {
					return nil, nil, false
				}
				broker := kmsg.NewMetadataResponseBroker()
				broker.NodeID, broker.Host, broker.Port = s.fake.CurrentNode(), "127.0.0.1", port(t, s.brokers[0])
				response.Brokers = append(response.Brokers, broker)
				for _, topic := range asked.Topics {
					answer := kmsg.NewMetadataResponseTopic()
					answer.Topic, answer.ErrorCode = topic.Topic, code.Code
					response.Topics = append(response.Topics, answer)
				}
				return response, nil, true
			})
			for _, err := range each(t, s.newPublisher().Publish(topicName(), newMessages(10)...), 10) {
				s.True(outbox.IsPermanent(err), "%v", err)
			}
		})
	}
}

func TestCloseIsIdempotentAndEndsPublishing(t *testing.T) {
	forEachServer(t, func(t *testing.T, s *server) {
		topic := s.createTopic(1)
		publisher := s.newPublisher()
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for {
					if err := publisher.Publish(topic, newMessages(10)...); err != nil {
						if !errors.Is(err, outbox.ErrClosed) {
							t.Error(err)
						}
						return
					}
				}
			})
		}
		s.NoError(publisher.Publish(topic, newMessages(10)...))
		for range 3 {
			all.Go(func() {
				if err := publisher.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		s.NoError(publisher.Close())
		s.ErrorIs(publisher.Publish(topic, newMessage("late")), outbox.ErrClosed)
	})
}
