package kafka_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/forwarder/kafka"
)

func TestABadConfigurationIsRefusedByItsField(t *testing.T) {
	config := func(change func(*kafka.Config)) kafka.Config {
		c := kafka.Config{Brokers: []string{"127.0.0.1:9092"}}
		change(&c)
		return c
	}
	for name, c := range map[string]struct {
		field  string
		change func(*kafka.Config)
	}{
		"no broker":     {"Config.Brokers", func(c *kafka.Config) { c.Brokers = nil }},
		"no port":       {"Config.Brokers", func(c *kafka.Config) { c.Brokers = []string{"kafka"} }},
		"timeout":       {"Config.Timeout", func(c *kafka.Config) { c.Timeout = -time.Second }},
		"retry timeout": {"Config.RetryTimeout", func(c *kafka.Config) { c.RetryTimeout = time.Minute }},
		"message size":  {"Config.MaxMessageBytes", func(c *kafka.Config) { c.MaxMessageBytes = 1 }},
		"more of a message than fits a request": {"Config.Options", func(c *kafka.Config) {
			c.MaxMessageBytes, c.Options = 2<<20, []kgo.Opt{kgo.BrokerMaxWriteBytes(1 << 20)}
		}},
		"no idempotence": {"Config.Options", func(c *kafka.Config) { c.Options = []kgo.Opt{kgo.DisableIdempotentWrite()} }},
		"transactions":   {"Config.Options", func(c *kafka.Config) { c.Options = []kgo.Opt{kgo.TransactionalID("t")} }},
		"a bad option":   {"Config.Options", func(c *kafka.Config) { c.Options = []kgo.Opt{kgo.MetadataMaxAge(time.Nanosecond)} }},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := kafka.NewPublisher(config(c.change), nil)
			var bad *outbox.FieldError
			require.ErrorAs(t, err, &bad)
			require.Equal(t, c.field, bad.Field, "%v", err)
		})
	}
}

func TestTrap_EachMessageSizeUpToTheLimitIsTaken(t *testing.T) {
	for _, size := range []int{512, 100 << 20, 200 << 20, 1 << 30} {
		p, err := kafka.NewPublisher(kafka.Config{Brokers: []string{"127.0.0.1:9092"}, MaxMessageBytes: size}, nil)
		require.NoError(t, err, size)
		require.NoError(t, p.Close())
	}
}
