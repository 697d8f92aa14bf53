package stores

import (
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/field"
)

// SubscriberConfig configures a Subscriber.
type SubscriberConfig struct {
	// Subscriber configures how messages are taken from each store. Dialect, Schema, Table and Store are set for each
	// store. MaxInFlight is the most messages in flight in one store. PollInterval defaults to 50 ms, because many stores
	// would poll too often with a shorter one, and ClaimTimeout to 10 s. ConsumerGroup and Wakeups are refused: read a log
	// with Run and a Subscriber for each store, and set the wake-ups of each in Configure.
	Subscriber outbox.SubscriberConfig

	// Configure may change that for a store: its Wakeups, Janitor or Hooks, but not ClaimTimeout, DrainTimeout and
	// AllowCompeting. Defaults to nothing.
	Configure func(*Store, *outbox.SubscriberConfig)

	// Strategy chooses the store whose messages are claimed next. Defaults to RoundRobin.
	Strategy SelectionStrategy

	// Concurrency is how many stores claim at the same time, 1 to 10,000. A store that hangs does not count after a second.
	// Defaults to 4.
	Concurrency int

	// MaxInFlight is the most messages that are claimed and not yet acked or nacked, over all stores; messages of a claim
	// that took more than a second may exceed it. Defaults to 1,000.
	MaxInFlight int

	// RetryMin and RetryMax bound the pause before a store that does not answer is tried again. Default to 100 ms and 30 s.
	RetryMin, RetryMax time.Duration
}

// maxConcurrency bounds SubscriberConfig.Concurrency: the scheduler keeps something for each claim.
const maxConcurrency = 10_000

func (c *SubscriberConfig) setDefaults() {
	field.Default(&c.MaxInFlight, 1000)
	field.Default(&c.Concurrency, 4)
	field.Default(&c.RetryMin, 100*time.Millisecond)
	field.Default(&c.RetryMax, max(30*time.Second, c.RetryMin))
	field.Default(&c.Subscriber.MaxInFlight, max(1, min(100, c.MaxInFlight)))
	field.Default(&c.Subscriber.PollInterval, 50*time.Millisecond)
	field.Default(&c.Subscriber.ClaimTimeout, 10*time.Second)
	field.Default(&c.Subscriber.DrainTimeout, 30*time.Second)
	if c.Strategy == nil {
		c.Strategy = RoundRobin{}
	}
	if c.Configure == nil {
		c.Configure = func(*Store, *outbox.SubscriberConfig) {}
	}
}

func (c *SubscriberConfig) validate() error {
	switch {
	case c.MaxInFlight < 1:
		return field.Bad("SubscriberConfig.MaxInFlight", "%d is less than 1", c.MaxInFlight)
	case c.Concurrency < 1 || c.Concurrency > maxConcurrency:
		return field.Bad("SubscriberConfig.Concurrency", "%d is not between 1 and %d", c.Concurrency, maxConcurrency)
	case c.RetryMin < 0 || c.RetryMax < c.RetryMin:
		return field.Bad("SubscriberConfig.RetryMin", "%v is not between 0 and RetryMax, %v", c.RetryMin, c.RetryMax)
	case c.Subscriber.ConsumerGroup != "":
		return field.Bad("SubscriberConfig.Subscriber.ConsumerGroup", "is set; read the log of each store with Run")
	case c.Subscriber.Wakeups != nil:
		return field.Bad("SubscriberConfig.Subscriber.Wakeups", "is set, and would wake one store; set it in Configure for each")
	}
	_, err := outbox.NewSubscriber(trial.db, trial.SubscriberConfig(c.Subscriber), nil)
	return field.Rename("SubscriberConfig", "SubscriberConfig.Subscriber", err)
}
