package prometheus

import "github.com/prometheus/client_golang/prometheus"

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
