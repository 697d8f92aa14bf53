package kafka_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/forwarder"
	"github.com/incursa/watermill-outbox/forwarder/kafka"
	"github.com/incursa/watermill-outbox/internal/base"
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
			newMessage(everyByte(), "a", "1", "empty", "", "ключ", "значение", outbox.HeaderStreamKey, "order-7"),
			newMessage("", outbox.HeaderStreamKey, "ключ"),
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

// Unmarshal makes the message that was published.
func TestTheMarshalerReadsWhatItWrites(t *testing.T) {
	sent := newMessage("payload", "a", "1", outbox.HeaderStreamKey, "k")
	record, err := kafka.DefaultMarshaler{}.Marshal("topic", sent)
	require.NoError(t, err)
	require.True(t, kafka.DefaultMarshaler{}.Unmarshal(record).Equals(sent))
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
						batch = append(batch, newMessage(fmt.Sprint(n/streams), outbox.HeaderStreamKey, fmt.Sprintf("%d-%d", p, n%streams)))
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
			s.ErrorIs(err, kerr.UnknownTopicOrPartition)
			s.False(outbox.IsPermanent(err))
		}
		s.create(topic, 1)
		s.NoError(publisher.Publish(topic, messages...))
		s.Len(s.read(topic, 50), 50)
	})
}

func TestWhatTheBrokerSaysDecides(t *testing.T) {
	for _, c := range []struct {
		code        *kerr.Error
		permanent   bool
		unavailable bool
	}{
		{kerr.InvalidTopicException, true, false},
		{kerr.TopicAuthorizationFailed, false, true},
		{kerr.MessageTooLarge, true, false},
		{kerr.InvalidRecord, true, false},
		{kerr.InvalidTimestamp, true, false},
		{kerr.NotLeaderForPartition, false, true},
		{kerr.LeaderNotAvailable, false, true},
		{kerr.NotEnoughReplicas, false, true},
		{kerr.NotEnoughReplicasAfterAppend, false, true},
		{kerr.RequestTimedOut, false, true},
		{kerr.OutOfOrderSequenceNumber, false, true},
		{kerr.InvalidProducerEpoch, false, true},
		{kerr.ClusterAuthorizationFailed, false, true},
		{kerr.KafkaStorageError, false, true},
		{kerr.UnknownServerError, false, false},
	} {
		t.Run(c.code.Message, func(t *testing.T) {
			s := newFake(t, kfake.NumBrokers(1))
			topic := s.createTopic(1)
			publisher := s.newPublisher(func(c *kafka.Config) { c.Timeout = 3 * time.Second })
			s.answerProduce(func(int32) *kerr.Error { return c.code })
			err := publisher.Publish(topic, newMessages(10)...)
			for _, err := range each(t, err, 10) {
				s.Error(err)
				s.Equal(c.permanent, outbox.IsPermanent(err), "%v", err)
				s.Equal(c.unavailable, base.IsUnavailable(err), "%v", err)
			}
		})
	}
}

// seeAcks gets the acks of what is produced.
func (s *server) seeAcks() <-chan int16 {
	acks := make(chan int16, 100)
	s.fake.ControlKey(int16(kmsg.Produce), func(request kmsg.Request) (kmsg.Response, error, bool) {
		s.fake.KeepControl()
		if produce, ok := request.(*kmsg.ProduceRequest); ok {
			acks <- produce.Acks
		}
		return nil, nil, false
	})
	return acks
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
			answer.Topic, answer.TopicID = topic.Topic, topic.TopicID
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
	for code, permanent := range map[*kerr.Error]bool{kerr.InvalidTopicException: true, kerr.TopicAuthorizationFailed: false} {
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
				s.ErrorIs(err, code)
				s.Equal(permanent, outbox.IsPermanent(err), "%v", err)
				s.Equal(!permanent, base.IsUnavailable(err), "%v", err)
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

// acks=1 among the options does not weaken what the Publisher promises.
func TestAcknowledgementByAllReplicasStays(t *testing.T) {
	s := newFake(t)
	topic := s.createTopic(1)
	acks := s.seeAcks()
	s.NoError(s.newPublisher(func(c *kafka.Config) { c.Options = []kgo.Opt{kgo.RequiredAcks(kgo.LeaderAck())} }).Publish(topic, newMessage("a")))
	s.Equal(int16(-1), <-acks)
}
