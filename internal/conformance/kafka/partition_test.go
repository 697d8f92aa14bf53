package kafka_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	outbox "github.com/incursa/watermill-outbox"
)

// One of two partitions is away for longer than messages can be held. The other goes on as fast as before, no attempt is
// spent, and all streams keep their order. The two speeds are medians of
// alternating runs, because the machine itself is faster at times than at others.
func TestLong_OnePartitionAway(t *testing.T) {
	full := os.Getenv("OUTBOX_TEST_RELAY") == "full"
	n, runs, codes := 4_000, 1, []*kerr.Error{kerr.NotLeaderForPartition} // twice what may be in flight
	if full {
		n, runs, codes = 60_000, 3, append(codes, kerr.LeaderNotAvailable, kerr.UnknownTopicOrPartition)
	}
	for _, code := range codes {
		t.Run(code.Message, func(t *testing.T) {
			forEachSource(t, func(t *testing.T, o *source) {
				s := newFake(t, kfake.NumBrokers(2))
				var gone atomic.Bool
				s.answerProduce(func(partition int32) *kerr.Error {
					if partition == 0 && gone.Load() {
						return code
					}
					return nil
				})
				var well, away []float64
				for range runs {
					well = append(well, o.otherPartition(s, s.apart(), n).speed)
					gone.Store(true)
					topic := s.apart()
					r := o.otherPartition(s, topic, n)
					away = append(away, r.speed)
					gone.Store(false)
					for ids := range slices.Chunk(r.ids, 1000) {
						for _, record := range o.becomes(outbox.Done, ids...) {
							o.Zero(record.RetryCount)
						}
					}
					inOrder(t, firsts(s.read(topic, n)))
				}
				slices.Sort(well)
				slices.Sort(away)
				ratio := away[runs/2] / well[runs/2]
				t.Logf("messages a second of a partition, medians: %.0f while both are well, %.0f while the other is away: %.2f",
					well[runs/2], away[runs/2], ratio)
				if full {
					o.GreaterOrEqual(ratio, 0.8)
				}
			})
		})
	}
}

type run struct {
	ids   []outbox.MessageID
	speed float64 // messages a second
}

// otherPartition forwards n messages of 100 streams, until those for partition 1 have arrived.
func (o *source) otherPartition(s *server, topic string, n int) (r run) {
	o.t.Helper()
	const streams = 100
	messages, byKey, expected := make([]outbox.Message, n), kgo.StickyKeyPartitioner(nil).ForTopic(topic), 0
	for i := range messages {
		key := fmt.Sprint(i % streams)
		messages[i] = outbox.Message{Topic: topic, UUID: watermill.NewUUID(), Payload: fmt.Append(nil, i/streams), StreamKey: key}
		expected += byKey.Partition(&kgo.Record{Key: []byte(key)}, 2)
	}
	r.ids = o.add(messages...)
	consumer, err := kgo.NewClient(kgo.SeedBrokers(s.brokers...), kgo.FetchMaxWait(50*time.Millisecond),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {1: kgo.NewOffset().AtStart()}}))
	o.NoError(err)
	defer consumer.Close()
	begun := time.Now()
	o.forward(s, topic)
	uuids := map[string]bool{}
	for ctx := s.context(); len(uuids) < expected; {
		for _, record := range consumer.PollFetches(ctx).Records() {
			uuids[header(record, uuidHeader)] = true
		}
		o.NoError(ctx.Err(), "%d of %d messages of the partition that is well are there", len(uuids), expected)
	}
	r.speed = float64(expected) / time.Since(begun).Seconds()
	return r
}

// A topic in which nobody may write holds its own messages, spends no attempt, and goes on when it is allowed.
func TestTrap_AMissingRightHoldsOnlyItsTopic(t *testing.T) {
	forEachSource(t, func(t *testing.T, o *source) {
		s := newFake(t, kfake.NumBrokers(2))
		allowed, forbidden := s.createTopic(1), s.createTopic(1)
		s.NoError(s.fake.MoveTopicPartition(allowed, 0, 0))
		s.NoError(s.fake.MoveTopicPartition(forbidden, 0, 1))
		var granted atomic.Bool
		s.fake.ControlKey(int16(kmsg.Produce), func(request kmsg.Request) (kmsg.Response, error, bool) {
			s.fake.KeepControl()
			produce, ok := request.(*kmsg.ProduceRequest)
			if !ok || granted.Load() || s.fake.CurrentNode() != 1 {
				return nil, nil, false
			}
			response, ok := produce.ResponseKind().(*kmsg.ProduceResponse)
			if !ok {
				return nil, nil, false
			}
			for _, topic := range produce.Topics {
				answer := kmsg.NewProduceResponseTopic()
				answer.Topic, answer.TopicID = topic.Topic, topic.TopicID
				for _, partition := range topic.Partitions {
					answered := kmsg.NewProduceResponseTopicPartition()
					answered.Partition, answered.ErrorCode = partition.Partition, kerr.TopicAuthorizationFailed.Code
					answer.Partitions = append(answer.Partitions, answered)
				}
				response.Topics = append(response.Topics, answer)
			}
			return response, nil, true
		})
		logged := watermill.NewCaptureLogger()
		o.logger = logged
		o.forward(s, allowed, forbidden)
		held := o.enqueue(forbidden, 50)
		for range 5 {
			o.noAttemptIsSpent(o.becomes(outbox.Done, o.enqueue(allowed, 50)...))
		}
		o.noAttemptIsSpent(o.becomes(outbox.InProgress, held...))
		said := 0
		for _, line := range logged.Captured()[watermill.ErrorLogLevel] {
			if errors.Is(line.Err, kerr.TopicAuthorizationFailed) && line.Fields["destination"] == forbidden {
				said++
			}
		}
		o.Equal(1, said, "it is said once, with its topic")
		granted.Store(true)
		o.noAttemptIsSpent(o.becomes(outbox.Done, held...))
	})
}
