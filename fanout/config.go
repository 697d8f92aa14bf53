package fanout

import (
	"fmt"
	"slices"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/field"
	"github.com/incursa/watermill-outbox/internal/limits"
)

// Config configures a Dispatcher.
type Config struct {
	// Dialect is the database: outbox.SQLServer{}, outbox.Postgres{} or outbox.SQLite{}. Required.
	Dialect outbox.Dialect

	// Schema and Table name the outbox. Default to dbo and Outbox on SQL Server,
	// public and outbox on PostgreSQL, and outbox on SQLite, where Schema must be empty.
	Schema, Table string

	// Store names this outbox among several, as in outbox.Config. Defaults to none.
	Store string

	// Policies are dispatched concurrently. Required.
	Policies []Policy

	// BatchSize is the most messages that a policy dispatches in one transaction, 1 to 1,000. Defaults to 100.
	BatchSize int

	// PollInterval is the pause after a poll that found nothing. It doubles each time, up to MaxPollInterval. A wake-up of
	// this process ends it. Defaults to 5 ms.
	PollInterval time.Duration

	// MaxPollInterval is the longest pause. Defaults to 500 ms.
	MaxPollInterval time.Duration

	// Wakeups carries topics whose messages were given positions, for example from wake/pgx in the process of the Sequencer.
	// Wake-ups of this process need no channel. An empty string means all topics. A channel has one reader. Defaults to
	// none.
	Wakeups <-chan string

	// LeaseDuration is how long a policy waits after its dispatcher dies. Defaults to 10 s.
	LeaseDuration time.Duration

	// RetryMin and RetryMax bound the pause between tries while a destination or the database cannot be reached. Default to
	// 100 ms and 10 s.
	RetryMin, RetryMax time.Duration

	// DrainTimeout is how long Close lets the policies finish their current batches, up to 24 h. Defaults to 5 s.
	DrainTimeout time.Duration

	// OnDispatch is called after each batch, whether it could be dispatched or not, from any goroutine; it must not call the
	// Dispatcher. Defaults to nothing.
	OnDispatch func(DispatchEvent)
}

// A DispatchEvent describes a batch.
type DispatchEvent struct {
	Policy   string
	Read     int           // messages of the log
	Matched  int           // those sent to every destination
	Position int64         // of the last one
	Lag      time.Duration // how long the first one had been in the log when it was read, by the database's clock
	Took     time.Duration
	Err      error // nil if the batch was dispatched
}

func (c *Config) setDefaults() {
	field.Default(&c.BatchSize, 100)
	field.Default(&c.PollInterval, 5*time.Millisecond)
	field.Default(&c.MaxPollInterval, max(500*time.Millisecond, c.PollInterval))
	field.Default(&c.LeaseDuration, 10*time.Second)
	field.Default(&c.RetryMin, 100*time.Millisecond)
	field.Default(&c.RetryMax, max(10*time.Second, c.RetryMin))
	field.Default(&c.DrainTimeout, 5*time.Second)
	if c.OnDispatch == nil {
		c.OnDispatch = func(DispatchEvent) {}
	}
	c.Policies = slices.Clone(c.Policies)
}

// validate leaves LeaseDuration to the cursors.
func (c *Config) validate() error {
	switch {
	case len(c.Policies) == 0:
		return field.Bad("Config.Policies", "is empty; there is nothing to dispatch")
	case c.BatchSize < 1 || c.BatchSize > 1000:
		return field.Bad("Config.BatchSize", "%d is not between 1 and 1000", c.BatchSize)
	case c.PollInterval < 0 || c.MaxPollInterval < c.PollInterval:
		return field.Bad("Config.PollInterval", "%v is not between 0 and MaxPollInterval, %v", c.PollInterval, c.MaxPollInterval)
	case c.RetryMin < 0 || c.RetryMax < c.RetryMin:
		return field.Bad("Config.RetryMin", "%v is not between 0 and RetryMax, %v", c.RetryMin, c.RetryMax)
	case c.DrainTimeout < 0 || c.DrainTimeout > limits.Longest:
		return field.Bad("Config.DrainTimeout", "%v is not between 0 and %v", c.DrainTimeout, limits.Longest)
	}
	names := map[string]bool{}
	for i := range c.Policies {
		p := &c.Policies[i]
		if err := p.validate(i); err != nil {
			return err
		}
		if names[p.Name] {
			return field.Bad(fmt.Sprintf("Config.Policies[%d].Name", i), "%q is there twice; a policy has its cursor for itself", p.Name)
		}
		names[p.Name] = true
	}
	return nil
}
