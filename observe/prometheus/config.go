package prometheus

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/incursa/watermill-outbox/internal/field"
)

// Config configures Metrics.
type Config struct {
	// Stores are the names of the outboxes, Config.Store of each: their counters are there from the start, at 0, so that the
	// first event counts as an increase. Defaults to one without a name.
	Stores []string

	// MaxTopics is how many topics have a label of their own; the others share one. Defaults to 200.
	MaxTopics int

	// MaxStores is the same for stores. Defaults to 500.
	MaxStores int

	// Buckets are the upper bounds of the histograms, in seconds. Defaults to 1 ms to 5 minutes, in steps of about 3.
	Buckets []float64

	// ConstLabels are added to every metric. Defaults to none.
	ConstLabels prometheus.Labels
}

func (c *Config) setDefaults() {
	if len(c.Stores) == 0 {
		c.Stores = []string{""}
	}
	field.Default(&c.MaxTopics, 200)
	field.Default(&c.MaxStores, 500)
	if len(c.Buckets) == 0 {
		c.Buckets = []float64{.001, .003, .01, .03, .1, .3, 1, 3, 10, 30, 100, 300}
	}
}

func (c *Config) validate() error {
	switch {
	case c.MaxTopics < 1:
		return field.Bad("Config.MaxTopics", "%d is less than 1", c.MaxTopics)
	case c.MaxStores < 1:
		return field.Bad("Config.MaxStores", "%d is less than 1", c.MaxStores)
	}
	for i := 1; i < len(c.Buckets); i++ {
		if c.Buckets[i] <= c.Buckets[i-1] {
			return field.Bad("Config.Buckets", "%v follows %v; sort them", c.Buckets[i], c.Buckets[i-1])
		}
	}
	return nil
}
