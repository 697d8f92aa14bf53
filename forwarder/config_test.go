package forwarder

import (
	"database/sql"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/limits"
)

func topicNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("topic %d", i)
	}
	return names
}

// What a default comes to is never refused.
func TestTrap_ManyTopicsStayWithinTheLimit(t *testing.T) {
	for _, c := range []struct{ topics, concurrency, inFlight, perTopic int }{
		{1, 0, 2_000, 2_000},
		{50, 0, limits.MaxInFlight, 2_000},
		{51, 0, limits.MaxInFlight, limits.MaxInFlight / 51},
		{7, 8, limits.MaxInFlight, limits.MaxInFlight / 7},
		{100, maxConcurrency, limits.MaxInFlight, limits.MaxInFlight / 100},
	} {
		config := Config{Topics: topicNames(c.topics), Concurrency: c.concurrency, Subscriber: outbox.SubscriberConfig{Dialect: outbox.SQLite{}}}
		f, err := New(new(sql.DB), partAway{}, config, nil)
		require.NoError(t, err, "%d topics, %d at once", c.topics, c.concurrency)
		require.Equal(t, c.inFlight, f.config.Subscriber.MaxInFlight)
		require.Equal(t, c.perTopic, f.config.Subscriber.MaxInFlightPerTopic)
	}
}

// What would exhaust memory later, or end the process, is refused by name. What is allowed needs no more room than may be in flight.
func TestTrap_AForwarderRefusesWhatIsTooLarge(t *testing.T) {
	largest := Config{
		Topics: topicNames(1), BatchSize: limits.MaxInFlight, Concurrency: maxConcurrency, Subscriber: outbox.SubscriberConfig{Dialect: outbox.SQLite{}},
	}
	f, err := New(new(sql.DB), partAway{}, largest, nil)
	require.NoError(t, err)
	require.Equal(t, limits.MaxInFlight, f.config.queued())
	for name, change := range map[string]func(c *Config, n int){
		"Config.BatchSize":   func(c *Config, n int) { c.BatchSize = n },
		"Config.Concurrency": func(c *Config, n int) { c.Concurrency = n },
	} {
		for _, n := range []int{limits.MaxInFlight + 1, math.MaxInt} {
			config := largest
			change(&config, n)
			_, err := New(new(sql.DB), partAway{}, config, nil)
			var bad *outbox.FieldError
			require.ErrorAs(t, err, &bad)
			require.Equal(t, name, bad.Field)
		}
	}
}

// The path is the one that the user wrote.
func TestTrap_ABadFieldOfTheSubscriberIsNamedAsItWasWritten(t *testing.T) {
	for name, subscriber := range map[string]outbox.SubscriberConfig{
		"Config.Subscriber.MaxInFlight":      {Dialect: outbox.SQLite{}, MaxInFlight: -1},
		"Config.Subscriber.Store":            {Dialect: outbox.SQLite{}, Store: " "},
		"Config.Subscriber.Dialect":          {},
		"Config.Subscriber.Janitor.Interval": {Dialect: outbox.SQLite{}, Janitor: outbox.JanitorConfig{Interval: -1}},
	} {
		_, err := New(new(sql.DB), partAway{}, Config{Topics: topicNames(1), Subscriber: subscriber}, nil)
		var bad *outbox.FieldError
		require.ErrorAs(t, err, &bad)
		require.Equal(t, name, bad.Field)
	}
}
