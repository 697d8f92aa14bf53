package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/incursa/watermill-outbox/forwarder/kafka"
)

// forwardKafka measures the same into Kafka, a fake one in this process unless -kafka names one, beside two loops that
// produce as many in a batch with franz-go, acknowledged by all replicas, idempotent and not compressed: one has its
// messages in memory, the other claims them and acks them with the bare statements. As many loops run as the product has
// batches under way.
const (
	forwardKafka    = "forward_kafka"
	kafkaPartitions = 4
	kafkaLinger     = 2 * time.Millisecond // as forwarder/kafka has
)

func measureForwardKafka(ctx context.Context, b *bench) (results []result, err error) {
	k, err := openBareKafka(b)
	if err != nil {
		return nil, err
	}
	defer k.close()
	messages := b.count(forwardMessages)
	prepare := func(ctx context.Context) error {
		return errors.Join(b.fill(ctx, messages, 1, false), k.newTopic(ctx))
	}
	timed := func(run func(context.Context) (time.Duration, error)) side {
		return func(ctx context.Context) ([]float64, error) {
			took, err := run(ctx)
			if err != nil {
				return nil, err
			}
			return []float64{float64(messages) / took.Seconds()}, k.holds(ctx, messages)
		}
	}
	for _, concurrency := range []int{1, 2} {
		product := timed(func(ctx context.Context) (time.Duration, error) { return b.forwardKafka(ctx, k, messages, concurrency) })
		for _, bare := range []struct {
			of   string
			loop func(context.Context, int) error
		}{
			{"beside producing alone", func(ctx context.Context, nth int) error { return k.produceShare(ctx, messages, concurrency, nth) }},
			{"beside claiming, producing, acking", func(ctx context.Context, _ int) error { return b.relayKafka(ctx, k) }},
		} {
			bares, products, err := b.compare(ctx, prepare, timed(func(ctx context.Context) (time.Duration, error) {
				return inLoops(ctx, concurrency, bare.loop)
			}), product)
			if err != nil {
				return nil, err
			}
			r := perSecond(products[0], bares[0])
			r.Of, r.Concurrency = bare.of, concurrency
			results = append(results, r)
		}
	}
	return results, nil
}

// forwardKafka is the product's side.
func (b *bench) forwardKafka(ctx context.Context, k *bareKafka, messages, concurrency int) (took time.Duration, err error) {
	publisher, err := kafka.NewPublisher(kafka.Config{Brokers: k.brokers}, nil)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, publisher.Close()) }()
	return b.forwardTo(ctx, publisher, k.topic, messages, concurrency)
}

func inLoops(ctx context.Context, n int, loop func(context.Context, int) error) (time.Duration, error) {
	errs := make([]error, n)
	started := time.Now()
	var all sync.WaitGroup
	for nth := range n {
		all.Go(func() { errs[nth] = loop(ctx, nth) })
	}
	all.Wait()
	return time.Since(started), errors.Join(errs...)
}

// relayKafka is what somebody would write who needs no guarantees.
func (b *bench) relayKafka(ctx context.Context, k *bareKafka) (err error) {
	worker, err := b.bareWorker(ctx, "ack")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, worker.Close()) }()
	for {
		keys, messages, err := worker.take(ctx, topicName(0), forwardBatch)
		if err != nil || len(keys) == 0 {
			return err
		}
		if err := k.produce(ctx, messages); err != nil {
			return err
		}
		if err := worker.end(ctx, keys); err != nil {
			return err
		}
	}
}

// A bareKafka is the client alone, and the broker.
type bareKafka struct {
	*kgo.Client
	brokers []string
	payload []byte
	prefix  string
	topic   string // of this run
	topics  int
	fake    *kfake.Cluster // nil if there is a real one
}

func openBareKafka(b *bench) (*bareKafka, error) {
	k := &bareKafka{payload: b.payload, prefix: b.prefix}
	if b.kafka != "" {
		k.brokers = strings.Split(b.kafka, ",")
	} else {
		fake, err := kfake.NewCluster(kfake.NumBrokers(1))
		if err != nil {
			return nil, err
		}
		k.fake, k.brokers = fake, fake.ListenAddrs()
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(k.brokers...), kgo.RequiredAcks(kgo.AllISRAcks()), kgo.ProducerLinger(kafkaLinger),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.MetadataMinAge(100*time.Millisecond))
	if err != nil {
		k.closeFake()
		return nil, err
	}
	k.Client = client
	return k, nil
}

// newTopic replaces the topic, so that every run writes to an empty one.
func (k *bareKafka) newTopic(ctx context.Context) error {
	if err := k.dropTopic(ctx); err != nil {
		return err
	}
	k.topics++
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = fmt.Sprintf("%s-%d", k.prefix, k.topics), kafkaPartitions, 1
	request := kmsg.NewPtrCreateTopicsRequest()
	request.TimeoutMillis = 10_000
	request.Topics = append(request.Topics, topic)
	response, err := request.RequestWith(ctx, k.Client)
	if err != nil {
		return err
	}
	k.topic = topic.Topic
	return kerr.ErrorForCode(response.Topics[0].ErrorCode)
}

func (k *bareKafka) dropTopic(ctx context.Context) error {
	if k.topic == "" {
		return nil
	}
	request := kmsg.NewPtrDeleteTopicsRequest()
	request.TimeoutMillis, request.TopicNames = 10_000, []string{k.topic}
	topic := kmsg.NewDeleteTopicsRequestTopic()
	topic.Topic = kmsg.StringPtr(k.topic)
	request.Topics = append(request.Topics, topic)
	k.topic = ""
	_, err := request.RequestWith(ctx, k.Client)
	return err
}

// produceShare is one of several loops that have their messages in memory.
func (k *bareKafka) produceShare(ctx context.Context, messages, loops, nth int) error {
	batch := make([]claimed, 0, forwardBatch)
	for from := nth * forwardBatch; from < messages; from += loops * forwardBatch {
		batch = batch[:0]
		for range min(forwardBatch, messages-from) {
			batch = append(batch, claimed{watermill.NewUUID(), k.payload})
		}
		if err := k.produce(ctx, batch); err != nil {
			return err
		}
	}
	return nil
}

func (k *bareKafka) produce(ctx context.Context, messages []claimed) error {
	records := make([]*kgo.Record, len(messages))
	for i, m := range messages {
		records[i] = &kgo.Record{Topic: k.topic, Value: m.payload, Headers: []kgo.RecordHeader{{Key: kafka.HeaderUUID, Value: []byte(m.uuid)}}}
	}
	return k.ProduceSync(ctx, records...).FirstErr()
}

// holds looks whether everything has arrived.
func (k *bareKafka) holds(ctx context.Context, messages int) error {
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic = k.topic
	for nth := range int32(kafkaPartitions) {
		partition := kmsg.NewListOffsetsRequestTopicPartition()
		partition.Partition, partition.Timestamp = nth, -1 // the end
		topic.Partitions = append(topic.Partitions, partition)
	}
	request := kmsg.NewPtrListOffsetsRequest()
	request.ReplicaID = -1
	request.Topics = append(request.Topics, topic)
	response, err := request.RequestWith(ctx, k.Client)
	if err != nil {
		return err
	}
	var held int64
	for _, t := range response.Topics {
		for _, p := range t.Partitions {
			held += p.Offset
		}
	}
	if held != int64(messages) {
		return fmt.Errorf("of %d messages the topic has %d", messages, held)
	}
	return nil
}

func (k *bareKafka) close() {
	_ = k.dropTopic(context.Background())
	k.Close()
	k.closeFake()
}

func (k *bareKafka) closeFake() {
	if k.fake != nil {
		k.fake.Close()
	}
}
