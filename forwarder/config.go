package forwarder

import (
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/field"
	"github.com/incursa/watermill-outbox/internal/limits"
)

// Config configures a Forwarder.
type Config struct {
	// Topics are the topics of the outbox to forward. Required.
	Topics []string

	// Destination returns the topic to which a message is published. An error fails the message for good. A destination that
	// is away does not hold up the others. Defaults to the same topic.
	Destination func(topic string, msg *message.Message) (string, error)

	// BatchSize is the most messages in one Publish, all of one destination, 1 to 100,000. Defaults to 500.
	BatchSize int

	// BatchBytes is the most payload and metadata in one batch, in bytes; a single message may have more. Defaults to 8 MiB.
	BatchBytes int64

	// Concurrency is how many batches of a topic are published at once, 1 to 1,000. Above 1, messages keep their order only
	// within a stream, whose messages are then published one at a time. Defaults to 1.
	Concurrency int

	// RetryMin and RetryMax bound the pause between tries while the broker is away. Default to 100 ms and 10 s.
	RetryMin, RetryMax time.Duration

	// Subscriber configures how messages are taken from the outbox, with the Dialect. Required. Up to MaxStreamRun messages of
	// a stream are published at once, in order, so a broker that rejects one of them may already have the next; with 1, each
	// is confirmed first. The forwarder sets PipelineStreams itself. MaxInFlight defaults to four times what may be
	// published at once, so that a batch is ready while others are claimed, published and acknowledged, but to no more than
	// 100,000, and MaxInFlightPerTopic to each topic's share of it. MaxHandlerTime defaults to -1, because an outage may be
	// long, and DrainTimeout to 5 s.
	Subscriber outbox.SubscriberConfig

	// MarkPublished adds the stage Published, see middleware.Stages, to each message that the broker has taken. It is saved
	// with the acknowledgement, which then costs more. With DeleteOnAck there is nothing to see. Defaults to false.
	MarkPublished bool

	// OnState is called, in order, when the breaker opens or closes. It may call State, and must not close the Forwarder.
	// Defaults to nothing.
	OnState func(State)
}

// maxConcurrency bounds Config.Concurrency: each batch has goroutines of its own.
const maxConcurrency = 1_000

func (c *Config) setDefaults() {
	if c.Destination == nil {
		c.Destination = func(topic string, _ *message.Message) (string, error) { return topic, nil }
	}
	field.Default(&c.BatchSize, 500)
	field.Default(&c.BatchBytes, 8<<20)
	field.Default(&c.Concurrency, 1)
	field.Default(&c.RetryMin, 100*time.Millisecond)
	field.Default(&c.RetryMax, max(10*time.Second, c.RetryMin))
	field.Default(&c.Subscriber.MaxInFlight, min(4*c.BatchSize*c.Concurrency*max(1, len(c.Topics)), limits.MaxInFlight))
	field.Default(&c.Subscriber.MaxInFlightPerTopic, max(1, c.Subscriber.MaxInFlight/max(1, len(c.Topics))))
	field.Default(&c.Subscriber.MaxHandlerTime, -1) // an outage may be long
	field.Default(&c.Subscriber.DrainTimeout, 5*time.Second)
	c.Subscriber.PipelineStreams = c.Concurrency == 1
	if c.OnState == nil {
		c.OnState = func(State) {}
	}
}

// queued is the most messages of a topic that wait for their batches: those of all batches, or whatever may be in flight.
func (c *Config) queued() int {
	return min(c.BatchSize*c.Concurrency, c.Subscriber.MaxInFlightPerTopic)
}

// held is how many unpublishable messages a worker holds: a quarter of its limit, so that others can pass.
func (c *Config) held() int { return max(1, c.Subscriber.MaxInFlightPerTopic/c.Concurrency/4) }

func (c *Config) validate() error {
	switch {
	case len(c.Topics) == 0:
		return field.Bad("Config.Topics", "is empty; name the topics to forward")
	case c.BatchSize < 1 || c.BatchSize > limits.MaxInFlight: // a larger one would never be full
		return field.Bad("Config.BatchSize", "%d is not between 1 and %d", c.BatchSize, limits.MaxInFlight)
	case c.BatchBytes < 1:
		return field.Bad("Config.BatchBytes", "%d is less than 1", c.BatchBytes)
	case c.Concurrency < 1 || c.Concurrency > maxConcurrency:
		return field.Bad("Config.Concurrency", "%d is not between 1 and %d", c.Concurrency, maxConcurrency)
	case c.RetryMin < 0 || c.RetryMax < c.RetryMin:
		return field.Bad("Config.RetryMin", "%v is not between 0 and RetryMax, %v", c.RetryMin, c.RetryMax)
	}
	seen := map[string]bool{}
	for _, topic := range c.Topics {
		if seen[topic] {
			return field.Bad("Config.Topics", "names %q twice; set Concurrency to publish more at once", topic)
		}
		seen[topic] = true
	}
	return nil
}
