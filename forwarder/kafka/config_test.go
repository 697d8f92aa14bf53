package kafka_test

import (
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/forwarder/kafka"
)

func TestABadConfigurationIsRefusedByItsField(t *testing.T) {
	weaker := func(change func(*sarama.Config)) kafka.Config {
		c := kafka.SaramaConfig()
		change(c)
		return kafka.Config{Brokers: []string{"127.0.0.1:9092"}, Sarama: c}
	}
	for field, config := range map[string]kafka.Config{
		"Config.Brokers":                        {},
		"Config.RetryTimeout":                   {Brokers: []string{"127.0.0.1:9092"}, RetryTimeout: -time.Second},
		"Config.Sarama.Producer.RequiredAcks":   weaker(func(c *sarama.Config) { c.Producer.RequiredAcks = sarama.WaitForLocal }),
		"Config.Sarama.Producer.Idempotent":     weaker(func(c *sarama.Config) { c.Producer.Idempotent = false }),
		"Config.Sarama.Net.MaxOpenRequests":     weaker(func(c *sarama.Config) { c.Net.MaxOpenRequests = 5 }),
		"Config.Sarama.Version":                 weaker(func(c *sarama.Config) { c.Version = sarama.V0_10_2_0 }),
		"Config.Sarama.Producer.Return":         weaker(func(c *sarama.Config) { c.Producer.Return.Successes = false }),
		"Config.Sarama.Producer.Transaction.ID": weaker(func(c *sarama.Config) { c.Producer.Transaction.ID = "t" }),
		"Config.Sarama":                         weaker(func(c *sarama.Config) { c.Net.SASL.Enable = true }),
	} {
		t.Run(field, func(t *testing.T) {
			_, err := kafka.NewPublisher(config, nil)
			var bad *outbox.FieldError
			require.ErrorAs(t, err, &bad)
			require.Equal(t, field, bad.Field, "%v", err)
		})
	}
	_, err := kafka.NewPublisher(kafka.Config{Brokers: []string{"kafka"}}, nil)
	require.ErrorContains(t, err, `"kafka" is not host:port`)
}

// Sarama's own defaults are acks=1 and no idempotence.
func TestSaramasDefaultsAreRefused(t *testing.T) {
	_, err := kafka.NewPublisher(kafka.Config{Brokers: []string{"127.0.0.1:9092"}, Sarama: sarama.NewConfig()}, nil)
	require.ErrorContains(t, err, "RequiredAcks")
}

func TestTheCallersSettingsAreNotChanged(t *testing.T) {
	settings := kafka.SaramaConfig()
	publisher, err := kafka.NewPublisher(kafka.Config{Brokers: []string{"127.0.0.1:9092"}, ClientID: "shop", Sarama: settings}, nil)
	require.NoError(t, err)
	require.NoError(t, publisher.Close())
	require.Equal(t, "watermill-outbox", settings.ClientID)
}

func TestWatermillConfigWaitsForAllReplicas(t *testing.T) {
	config := kafka.WatermillConfig([]string{"127.0.0.1:9092"})
	require.NoError(t, config.Validate())
	s := config.OverwriteSaramaConfig
	require.NoError(t, s.Validate())
	require.Equal(t, sarama.WaitForAll, s.Producer.RequiredAcks)
	require.False(t, s.Producer.Idempotent, "see TestWatermillsOwnPublisherLosesNothingEither")
	require.True(t, s.Producer.Return.Successes)
	require.Equal(t, 1, s.Net.MaxOpenRequests)
}
