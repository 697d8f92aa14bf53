package kafka

import (
	"fmt"
	"net"
	"time"

	"github.com/IBM/sarama"
	wkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"

	outbox "github.com/incursa/watermill-outbox"
)

const defaultClientID = "watermill-outbox"

// Config configures a Publisher.
type Config struct {
	// Brokers are the addresses, host:port, through which the cluster is found. Required.
	Brokers []string

	// ClientID is the name that brokers log. Defaults to that of Sarama, which is "watermill-outbox" if not set there.
	ClientID string

	// RetryTimeout is how long Publish goes on with messages that fail while others get through. Defaults to 5 s.
	RetryTimeout time.Duration

	// Sarama is for TLS, SASL, the partitioner, compression, limits, timeouts and retries; begin with SaramaConfig. It is
	// copied. Settings that give up acknowledgement by all replicas or idempotence are refused. Flush and Interceptors are
	// those of sarama's producer, which is not used. Defaults to SaramaConfig().
	Sarama *sarama.Config
}

// SaramaConfig is what a Publisher uses if it is not told otherwise: acks=all, idempotence, and timeouts of seconds.
func SaramaConfig() *sarama.Config {
	c := sarama.NewConfig()
	c.ClientID = defaultClientID
	c.Net.MaxOpenRequests = 1
	c.Net.DialTimeout = 5 * time.Second
	c.Net.ReadTimeout = 15 * time.Second // longer than Producer.Timeout, for which the leader waits for the replicas
	c.Net.WriteTimeout = 15 * time.Second
	c.Metadata.Timeout = 10 * time.Second
	c.Metadata.Retry.Backoff = 100 * time.Millisecond
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Idempotent = true
	c.Producer.Return.Successes = true
	c.Producer.Retry.Max = 10
	c.Producer.Retry.Backoff = 100 * time.Millisecond
	return c
}

// WatermillConfig is a configuration for watermill-kafka's own publisher: acks=all, the order kept, and the stream key as
// record key. That publisher connects when it is made, sends one message after the other, and gives no account of a batch.
//
// It is not idempotent, for sarama's producer then loses messages: after some failures it gives two messages the same
// number, Kafka takes one for a repetition of the other, and Publish returns no error. Without it, a retry may write twice.
func WatermillConfig(brokers []string) wkafka.PublisherConfig {
	c := SaramaConfig()
	c.Producer.Idempotent = false
	return wkafka.PublisherConfig{Brokers: brokers, Marshaler: Marshaler{}, OverwriteSaramaConfig: c}
}

func (c *Config) setDefaults() {
	if c.Sarama == nil {
		c.Sarama = SaramaConfig()
	}
	own := *c.Sarama
	c.Sarama = &own
	switch {
	case c.ClientID != "":
		own.ClientID = c.ClientID
	case own.ClientID == "" || own.ClientID == sarama.NewConfig().ClientID:
		own.ClientID = defaultClientID
	}
	c.ClientID = own.ClientID
	if c.RetryTimeout == 0 {
		c.RetryTimeout = 5 * time.Second
	}
}

func (c *Config) validate() error {
	if len(c.Brokers) == 0 {
		return badField("Config.Brokers", "is empty; name at least one broker, as host:port")
	}
	for _, address := range c.Brokers {
		if _, port, err := net.SplitHostPort(address); err != nil || port == "" {
			return badField("Config.Brokers", "%q is not host:port", address)
		}
	}
	if c.RetryTimeout < 0 {
		return badField("Config.RetryTimeout", "%v is negative", c.RetryTimeout)
	}
	return c.validateSarama()
}

func (c *Config) validateSarama() error {
	const start = "; start from kafka.SaramaConfig()"
	s := c.Sarama
	switch {
	case s.Producer.RequiredAcks != sarama.WaitForAll:
		return badField("Config.Sarama.Producer.RequiredAcks", "is %d; a message could be lost unless it is WaitForAll"+start, s.Producer.RequiredAcks)
	case !s.Producer.Idempotent:
		return badField("Config.Sarama.Producer.Idempotent", "is false; a retry could write twice and out of order"+start)
	case s.Net.MaxOpenRequests != 1:
		return badField("Config.Sarama.Net.MaxOpenRequests", "is %d; the order is only kept if it is 1"+start, s.Net.MaxOpenRequests)
	case !s.Version.IsAtLeast(sarama.V0_11_0_0):
		return badField("Config.Sarama.Version", "%v has neither headers nor idempotence; at least 0.11 has", s.Version)
	case !s.Producer.Return.Successes || !s.Producer.Return.Errors:
		return badField("Config.Sarama.Producer.Return", "Successes and Errors must both be true"+start)
	case s.Producer.Transaction.ID != "":
		return badField("Config.Sarama.Producer.Transaction.ID", "is set; the publisher has no transactions")
	}
	if err := s.Validate(); err != nil {
		return badField("Config.Sarama", "%v", err)
	}
	return nil
}

func badField(field, format string, args ...any) error {
	return &outbox.FieldError{Field: field, Reason: fmt.Sprintf(format, args...)}
}
