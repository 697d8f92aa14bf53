package kafka

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

// A producer numbers the batches of each partition, so that Kafka knows a batch that is sent again.
//
// A number stands for one batch of messages for ever: it is only given to another if the broker has refused the first. Where
// that cannot be known, nothing more is sent to the partition by this producer, and another takes its place.
type producer struct {
	client sarama.Client
	config *sarama.Config
	wait   func(time.Duration) bool // answers false at Close
	id     int64
	epoch  int16

	mu         sync.Mutex
	dealers    map[string]sarama.Partitioner
	partitions map[place]*partition
}

type place struct {
	topic     string
	partition int32
}

// A partition is locked by whoever sends to it.
type partition struct {
	mu   sync.Mutex
	next int32 // number of the next message
	err  error // why it takes no more
}

func newProducer(client sarama.Client, config *sarama.Config, wait func(time.Duration) bool) (*producer, error) {
	p := &producer{client: client, config: config, wait: wait, dealers: map[string]sarama.Partitioner{}, partitions: map[place]*partition{}}
	request := &sarama.InitProducerIDRequest{}
	if config.Version.IsAtLeast(sarama.V2_0_0_0) {
		request.Version = 1
	}
	err := error(sarama.ErrOutOfBrokers)
	for _, broker := range client.Brokers() {
		_ = broker.Open(config) // it may be open; if it cannot be opened, the next line says so
		var response *sarama.InitProducerIDResponse
		if response, err = broker.InitProducerID(request); err != nil {
			continue
		}
		if response.Err == sarama.ErrNoError {
			p.id, p.epoch = response.ProducerID, response.ProducerEpoch
			return p, nil
		}
		err = response.Err
	}
	return nil, err
}

// A queue is what one call has for one partition, in batches that are sent one after the other.
type queue struct {
	place
	*partition
	batches [][]*sarama.ProducerMessage
	sent    *sarama.RecordBatch // the first of batches, once it has been sent
	doubt   bool                // it may have been written, though the answer was another
	err     error
}

// send answers for each message that was not written why, by its place.
func (p *producer) send(topic string, records []*sarama.ProducerMessage) map[int]error {
	failures := map[int]error{}
	queues := p.deal(topic, records, failures)
	for _, q := range queues {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.err = q.partition.err
	}
	for try := 0; ; {
		open := slices.DeleteFunc(slices.Clone(queues), func(q *queue) bool { return len(q.batches) == 0 || q.err != nil })
		if len(open) == 0 {
			break
		}
		again := p.round(open)
		if len(again) == 0 {
			continue
		}
		try++
		if try > p.config.Producer.Retry.Max || p.client.RefreshMetadata(topic) != nil || !p.wait(p.config.Producer.Retry.Backoff) {
			for _, q := range again {
				q.partition.err = q.err
			}
			continue
		}
		for _, q := range again {
			q.err = nil
		}
	}
	for _, q := range queues {
		for _, record := range slices.Concat(q.batches...) {
			failures[index(record)] = q.err
		}
	}
	return failures
}

func index(record *sarama.ProducerMessage) int {
	i, _ := record.Metadata.(int) // newBatch puts it there
	return i
}

// deal chooses the partition of each message, in the order of the partitions, which is that in which they are locked.
func (p *producer) deal(topic string, records []*sarama.ProducerMessage, failures map[int]error) []*queue {
	p.mu.Lock()
	defer p.mu.Unlock()
	dealer := p.dealers[topic]
	if dealer == nil {
		dealer = p.config.Producer.Partitioner(topic)
		p.dealers[topic] = dealer
	}
	queues, bytes := map[int32]*queue{}, map[int32]int{}
	for _, record := range records {
		id, err := p.choose(dealer, record)
		if err != nil {
			failures[index(record)] = err
			continue
		}
		q := queues[id]
		if q == nil {
			at := place{topic, id}
			if p.partitions[at] == nil {
				p.partitions[at] = &partition{}
			}
			q = &queue{place: at, partition: p.partitions[at]}
			queues[id] = q
		}
		size := record.ByteSize(2)
		if len(q.batches) == 0 || bytes[id]+size > p.config.Producer.MaxMessageBytes {
			q.batches, bytes[id] = append(q.batches, nil), recordBatchOverhead
		}
		last := len(q.batches) - 1
		q.batches[last] = append(q.batches[last], record)
		bytes[id] += size
	}
	sorted := make([]*queue, 0, len(queues))
	for _, q := range queues {
		sorted = append(sorted, q)
	}
	slices.SortFunc(sorted, func(a, b *queue) int { return int(a.place.partition) - int(b.place.partition) })
	return sorted
}

const recordBatchOverhead = 61

var errTooLarge = errors.New("the message is too large")

func (p *producer) choose(dealer sarama.Partitioner, record *sarama.ProducerMessage) (int32, error) {
	if size := record.ByteSize(2) + recordBatchOverhead; size > p.config.Producer.MaxMessageBytes {
		return 0, fmt.Errorf("%w: with its headers it has about %d bytes, and Producer.MaxMessageBytes is %d", errTooLarge, size, p.config.Producer.MaxMessageBytes)
	}
	consistent := dealer.RequiresConsistency()
	if dynamic, ok := dealer.(sarama.DynamicConsistencyPartitioner); ok {
		consistent = dynamic.MessageRequiresConsistency(record)
	}
	list := p.client.WritablePartitions
	if consistent {
		list = p.client.Partitions
	}
	ids, err := list(record.Topic)
	if err != nil {
		return 0, err
	}
	if len(ids) == 0 {
		return 0, sarama.ErrLeaderNotAvailable
	}
	choice, err := dealer.Partition(record, int32(len(ids)))
	if err != nil {
		return 0, err
	}
	if choice < 0 || int(choice) >= len(ids) {
		return 0, sarama.ErrInvalidPartition
	}
	return ids[choice], nil
}

// round sends the first batch of each queue, in one request to each leader, and answers the queues to try again.
func (p *producer) round(open []*queue) (again []*queue) {
	byLeader := map[*sarama.Broker][]*queue{}
	for _, q := range open {
		leader, err := p.client.Leader(q.topic, q.place.partition)
		if err != nil {
			q.err = err
			again = append(again, q)
			continue
		}
		byLeader[leader] = append(byLeader[leader], q)
	}
	var requests sync.WaitGroup
	for leader, queues := range byLeader {
		requests.Go(func() { p.request(leader, queues) })
	}
	requests.Wait()
	for _, queues := range byLeader {
		for _, q := range queues {
			if p.settle(q) {
				again = append(again, q)
			}
		}
	}
	return again
}

// request leaves the broker's answer in each queue's err.
func (p *producer) request(leader *sarama.Broker, queues []*queue) {
	request := &sarama.ProduceRequest{
		RequiredAcks: sarama.WaitForAll, Timeout: int32(p.config.Producer.Timeout / time.Millisecond), Version: p.version(),
	}
	for _, q := range queues {
		if q.sent == nil {
			if q.sent, q.err = p.numbered(q); q.err != nil {
				continue
			}
		}
		request.AddBatch(q.topic, q.place.partition, q.sent)
	}
	response, err := leader.Produce(request)
	if err != nil {
		_ = leader.Close() // it is opened again when it is asked for; two callers may close it
	}
	for _, q := range queues {
		if q.err != nil {
			continue
		}
		q.err = err
		if err != nil {
			continue
		}
		q.err = sarama.ErrIncompleteResponse
		if block := response.GetBlock(q.topic, q.place.partition); block != nil {
			q.err = block.Err
		}
	}
}

var errNumber = errors.New("the number of the next batch is not known")

// settle answers whether to try again.
func (p *producer) settle(q *queue) (again bool) {
	switch {
	case q.err == nil, errors.Is(q.err, sarama.ErrNoError), errors.Is(q.err, sarama.ErrDuplicateSequenceNumber):
		q.next = int32((int64(q.next) + int64(len(q.batches[0]))) & math.MaxInt32) // then from 0 again
		q.batches, q.sent, q.doubt, q.err = q.batches[1:], nil, false, nil
		return false
	case refused(q.err):
		if q.doubt { // else its number is free
			q.partition.err = errNumber
		}
		return false
	case passing(q.err):
		q.doubt = true
		return true
	default: // what the broker has is not known
		q.partition.err = q.err
		return false
	}
}

// passing is true of errors after which the same batch may be sent again at once, perhaps to another leader.
func passing(err error) bool {
	var said sarama.KError
	if !errors.As(err, &said) {
		return true // it is the connection
	}
	return slices.Contains([]sarama.KError{
		sarama.ErrInvalidMessage, sarama.ErrUnknownTopicOrPartition, sarama.ErrLeaderNotAvailable, sarama.ErrNotLeaderForPartition,
		sarama.ErrRequestTimedOut, sarama.ErrReplicaNotAvailable, sarama.ErrNetworkException, sarama.ErrNotEnoughReplicas,
		sarama.ErrNotEnoughReplicasAfterAppend, sarama.ErrKafkaStorageError, sarama.ErrFencedLeaderEpoch, sarama.ErrUnknownLeaderEpoch,
	}, said)
}

// numbered makes the first batch of a queue into what Kafka takes.
func (p *producer) numbered(q *queue) (*sarama.RecordBatch, error) {
	now := time.Now().Truncate(time.Millisecond)
	batch := &sarama.RecordBatch{
		Version: 2, Codec: p.config.Producer.Compression, CompressionLevel: p.config.Producer.CompressionLevel,
		FirstTimestamp: now, MaxTimestamp: now,
		ProducerID: p.id, ProducerEpoch: p.epoch, FirstSequence: q.next,
		LastOffsetDelta: int32(len(q.batches[0]) - 1),
	}
	for i, record := range q.batches[0] {
		r := &sarama.Record{OffsetDelta: int64(i)}
		var err error
		if record.Key != nil {
			if r.Key, err = record.Key.Encode(); err != nil {
				return nil, err
			}
		}
		if r.Value, err = record.Value.Encode(); err != nil {
			return nil, err
		}
		for h := range record.Headers {
			r.Headers = append(r.Headers, &record.Headers[h])
		}
		batch.Records = append(batch.Records, r)
	}
	return batch, nil
}

func (p *producer) version() int16 {
	switch {
	case p.config.Version.IsAtLeast(sarama.V2_1_0_0):
		return 7
	case p.config.Version.IsAtLeast(sarama.V2_0_0_0):
		return 6
	case p.config.Version.IsAtLeast(sarama.V1_0_0_0):
		return 5
	default:
		return 3
	}
}
