package kafka_test

import (
	"context"
	"crypto/rand"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/incursa/watermill-outbox/forwarder/kafka"
)

// patience bounds what a test waits for. What is waited for comes in milliseconds, or has failed.
const patience = 60 * time.Second

// A server is a Kafka to publish to. What arrives is read by a client that has nothing to do with the publisher's.
type server struct {
	*require.Assertions
	t       *testing.T
	brokers []string
	client  *kgo.Client
	fake    *kfake.Cluster // nil where the server is a real one
}

// forEachServer runs a test on a fake Kafka in this process, and on the real one that OUTBOX_TEST_KAFKA_BROKERS names.
func forEachServer(t *testing.T, test func(t *testing.T, s *server)) {
	t.Helper()
	t.Run("kfake", func(t *testing.T) { test(t, newFake(t, kfake.NumBrokers(1))) })
	t.Run("broker", func(t *testing.T) {
		brokers := os.Getenv("OUTBOX_TEST_KAFKA_BROKERS")
		if brokers == "" {
			t.Skip("OUTBOX_TEST_KAFKA_BROKERS is not set; compose.yaml has a Kafka, at 127.0.0.1:19092")
		}
		test(t, newServer(t, strings.Split(brokers, ",")))
	})
}

func newFake(t *testing.T, options ...kfake.Opt) *server {
	t.Helper()
	cluster := startFake(t, options...)
	s := newServer(t, cluster.ListenAddrs())
	s.fake = cluster
	return s
}

func startFake(t *testing.T, options ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	cluster, err := kfake.NewCluster(options...)
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	return cluster
}

func newServer(t *testing.T, brokers []string) *server {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return &server{Assertions: require.New(t), t: t, brokers: brokers, client: client}
}

func (s *server) context() context.Context {
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	s.t.Cleanup(cancel)
	return ctx
}

func topicName() string { return "outbox-" + strings.ToLower(rand.Text()[:12]) }

// createTopic makes a topic of a new name. Settings come in pairs.
func (s *server) createTopic(partitions int32, settings ...string) string {
	s.t.Helper()
	name := topicName()
	s.create(name, partitions, settings...)
	return name
}

func (s *server) create(name string, partitions int32, settings ...string) {
	s.t.Helper()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, partitions, 1
	for i := 0; i < len(settings); i += 2 {
		setting := kmsg.NewCreateTopicsRequestTopicConfig()
		setting.Name, setting.Value = settings[i], &settings[i+1]
		topic.Configs = append(topic.Configs, setting)
	}
	request := kmsg.NewPtrCreateTopicsRequest()
	request.TimeoutMillis = 10_000
	request.Topics = append(request.Topics, topic)
	response, err := request.RequestWith(s.context(), s.client)
	s.NoError(err)
	s.NoError(kerr.ErrorForCode(response.Topics[0].ErrorCode))
}

// newPublisher returns a publisher that is closed when the test ends.
func (s *server) newPublisher(options ...func(*kafka.Config)) *kafka.Publisher {
	s.t.Helper()
	return newPublisher(s.t, s.brokers, options...)
}

func newPublisher(t *testing.T, brokers []string, options ...func(*kafka.Config)) *kafka.Publisher {
	t.Helper()
	config := kafka.Config{Brokers: brokers}
	for _, option := range options {
		option(&config)
	}
	publisher, err := kafka.NewPublisher(config, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, publisher.Close()) })
	return publisher
}

// read returns the records of a topic, in the order of each partition, once there are messages of n different UUIDs.
func (s *server) read(topic string, n int) []*kgo.Record {
	s.t.Helper()
	records, messages := s.readAtLeast(topic, n)
	s.Equal(n, messages)
	return records
}

// readAtLeast also returns of how many messages the records are.
func (s *server) readAtLeast(topic string, n int) (records []*kgo.Record, messages int) {
	s.t.Helper()
	consumer, err := kgo.NewClient(kgo.SeedBrokers(s.brokers...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(100*time.Millisecond))
	s.NoError(err)
	defer consumer.Close()
	uuids := map[string]bool{}
	for ctx := s.context(); len(uuids) < n; {
		fetched := consumer.PollFetches(ctx)
		s.NoError(ctx.Err(), "%d of %d messages are there", len(uuids), n)
		for _, record := range fetched.Records() {
			records = append(records, record)
			uuids[header(record, uuidHeader)] = true
		}
	}
	return records, len(uuids)
}

const uuidHeader = "_watermill_message_uuid"

func header(record *kgo.Record, name string) string {
	for _, h := range record.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}

// A line is what connections to a fake Kafka go over. It can be cut.
type line struct {
	mu          sync.Mutex
	connections map[net.Conn]bool
	until       time.Time // it is cut off
}

func (l *line) listen(network, address string) (net.Listener, error) {
	listener, err := net.Listen(network, address)
	return &lineListener{listener, l}, err
}

// cut ends all connections, with whatever is on its way.
func (l *line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for connection := range l.connections {
		_ = connection.Close() // the server closes it too
	}
	clear(l.connections)
}

// cutFor also closes new connections as soon as they are made, until the time has passed.
func (l *line) cutFor(while time.Duration) {
	l.mu.Lock()
	l.until = time.Now().Add(while)
	l.mu.Unlock()
	l.cut()
}

type lineListener struct {
	net.Listener
	line *line
}

func (l *lineListener) Accept() (net.Conn, error) {
	connection, err := l.Listener.Accept()
	if err == nil {
		l.line.mu.Lock()
		defer l.line.mu.Unlock()
		if l.line.connections == nil {
			l.line.connections = map[net.Conn]bool{}
		}
		l.line.connections[connection] = true
		if time.Now().Before(l.line.until) {
			_ = connection.Close()
		}
	}
	return connection, err
}

func port(t *testing.T, address string) int32 {
	t.Helper()
	_, text, err := net.SplitHostPort(address)
	require.NoError(t, err)
	number, err := strconv.ParseInt(text, 10, 32)
	require.NoError(t, err)
	return int32(number)
}
