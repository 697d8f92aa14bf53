package kafka

import (
	"crypto/tls"
	"fmt"
	"math"
	"net"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"

	"github.com/incursa/watermill-outbox/internal/field"
)

// Config configures a Publisher.
type Config struct {
	// Brokers are the addresses, host:port, through which the cluster is found. Required.
	Brokers []string

	// ClientID is the name that brokers log. Defaults to "watermill-outbox".
	ClientID string

	// Timeout is how long Publish waits while nothing gets through. Defaults to 10 s.
	Timeout time.Duration

	// RetryTimeout is how long Publish waits for the rest once something has got through, or while no broker can be reached.
	// The remaining messages are outbox.Unavailable. Defaults to 2 s, or Timeout if that is less.
	RetryTimeout time.Duration

	// MaxMessageBytes is the largest record, and the largest batch before compression, in bytes, 512 to 1 GiB. A larger record
	// fails for good without being sent. From 100 MiB on, the brokers' socket.request.max.bytes must be raised too. Defaults to
	// 1,000,012, Kafka's own default.
	MaxMessageBytes int

	// Compression lists codecs in order of preference; the first that the broker supports is used. Defaults to none.
	Compression []kgo.CompressionCodec

	// TLS encrypts the connections. Defaults to none.
	TLS *tls.Config

	// SASL authenticates with the first mechanism that the broker supports; franz-go has them in packages under pkg/sasl.
	// Defaults to none.
	SASL []sasl.Mechanism

	// Marshaler turns messages into records. Defaults to DefaultMarshaler.
	Marshaler Marshaler

	// Options are further options of franz-go. DisableIdempotentWrite and transactions are refused. RequiredAcks and
	// RecordPartitioner have no effect: all replicas acknowledge, and the partitioner is the Publisher's. Defaults to none.
	Options []kgo.Opt
}

func (c *Config) setDefaults() {
	field.Default(&c.ClientID, "watermill-outbox")
	field.Default(&c.Timeout, 10*time.Second)
	field.Default(&c.RetryTimeout, min(2*time.Second, c.Timeout))
	field.Default(&c.MaxMessageBytes, 1_000_012)
	if c.Compression == nil {
		c.Compression = []kgo.CompressionCodec{kgo.NoCompression()}
	}
	if c.Marshaler == nil {
		c.Marshaler = DefaultMarshaler{}
	}
}

func (c *Config) validate() error {
	if len(c.Brokers) == 0 {
		return field.Bad("Config.Brokers", "is empty; name at least one broker, as host:port")
	}
	for _, address := range c.Brokers {
		if _, port, err := net.SplitHostPort(address); err != nil || port == "" {
			return field.Bad("Config.Brokers", "%q is not host:port", address)
		}
	}
	switch {
	case c.Timeout < 0:
		return field.Bad("Config.Timeout", "%v is negative", c.Timeout)
	case c.RetryTimeout < 0 || c.RetryTimeout > c.Timeout:
		return field.Bad("Config.RetryTimeout", "%v is not between 0 and Timeout, %v", c.RetryTimeout, c.Timeout)
	case c.MaxMessageBytes < 512 || c.MaxMessageBytes > 1<<30:
		return field.Bad("Config.MaxMessageBytes", "%d is not between 512 and %d", c.MaxMessageBytes, 1<<30)
	}
	return nil
}

// How long requests and connections may take, and how often franz-go retries before the Publisher counts a partition as
// away.
const (
	requestTimeout = 5 * time.Second // for the leader to wait for the replicas, and as much again for the network
	dialTimeout    = 5 * time.Second
	minBackoff     = 50 * time.Millisecond
	maxBackoff     = 500 * time.Millisecond
	tries          = 4
	linger         = 2 * time.Millisecond // all of a Publish is there before the first of it is sent
)

// open returns a client that connects when it is needed.
func (c *Config) open(partitioner kgo.Partitioner, hook kgo.Hook, logger watermill.LoggerAdapter) (*kgo.Client, error) {
	options := append([]kgo.Opt{
		kgo.DialTimeout(dialTimeout), kgo.RequestTimeoutOverhead(requestTimeout), kgo.ProduceRequestTimeout(requestTimeout),
		kgo.RetryBackoffFn(backoff), kgo.MetadataMinAge(2 * minBackoff), kgo.RecordRetries(tries), kgo.UnknownTopicRetries(tries),
		kgo.ProducerLinger(linger), kgo.WithLogger(kgoLogger{logger}), kgo.BrokerMaxWriteBytes(c.requestBytes()),
	}, c.Options...)
	options = append(options,
		kgo.SeedBrokers(c.Brokers...), kgo.ClientID(c.ClientID), kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerBatchMaxBytes(int32(c.MaxMessageBytes)), //nolint:gosec // validated
		kgo.ProducerBatchCompression(c.Compression...),
		kgo.RecordPartitioner(partitioner), kgo.WithHooks(hook),
		kgo.MaxBufferedRecords(math.MaxInt32),    // the caller bounds them
		kgo.AllowIdempotentProduceCancellation(), // Publish must end; what it reports as Unavailable may be written twice
	)
	if c.TLS != nil {
		options = append(options, kgo.DialTLSConfig(c.TLS))
	}
	if len(c.SASL) > 0 {
		options = append(options, kgo.SASL(c.SASL...))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, field.Bad("Config.Options", "%v", err)
	}
	if disabled, _ := client.OptValue(kgo.DisableIdempotentWrite).(bool); disabled {
		client.Close()
		return nil, field.Bad("Config.Options", "has DisableIdempotentWrite: a retry could write twice and out of order")
	}
	return client, nil
}

// requestBytes is the largest request: Kafka's default, or what the largest record needs.
func (c *Config) requestBytes() int32 {
	const kafkas, besideRecords, most = 100 << 20, 1 << 20, 1 << 30
	return int32(min(max(kafkas, c.MaxMessageBytes+besideRecords), most)) //nolint:gosec // at most 1 GiB
}

func backoff(n int) time.Duration { return min(minBackoff<<min(n, 10), maxBackoff) }

// kgoLogger passes franz-go's logs on at DEBUG: what matters to the caller is in the errors of Publish.
type kgoLogger struct{ logger watermill.LoggerAdapter }

func (l kgoLogger) Level() kgo.LogLevel { return kgo.LogLevelWarn }

func (l kgoLogger) Log(_ kgo.LogLevel, msg string, keyvals ...any) {
	fields := watermill.LogFields{}
	for i := 0; i+1 < len(keyvals); i += 2 {
		fields[fmt.Sprint(keyvals[i])] = keyvals[i+1]
	}
	l.logger.Debug("Kafka client: "+msg, fields)
}
