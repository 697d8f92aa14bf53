// Package measure turns what hooks tell into values of metrics, for the packages that export them: observe/prometheus and
// observe/otel. metrics.go has all metrics.
package measure

import (
	"sync"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/field"
)

// Config configures a Recorder.
type Config struct {
	Stores    []string // whose counters begin at 0; defaults to one without a name
	MaxTopics int      // that have a label of their own; defaults to 200
	MaxStores int      // the same; defaults to 500
}

// Series finds a series of a metric, which begins to exist: a counter at 0. Its values go to the function that it returns.
type Series func(m *Metric, labels ...string) func(float64)

// A Recorder tells values. It is safe for concurrent use, if its Series is.
type Recorder struct {
	series  Series
	topics  *names
	stores  *names
	watches watches

	deliveries sync.Map // deliveryKey → *delivery: handlers run often, and looking labels up is slow
}

// New returns a Recorder, or an error that names a bad field.
func New(c Config, series Series) (*Recorder, error) {
	field.Default(&c.MaxTopics, 200)
	field.Default(&c.MaxStores, 500)
	switch {
	case c.MaxTopics < 1:
		return nil, field.Bad("Config.MaxTopics", "%d is less than 1", c.MaxTopics)
	case c.MaxStores < 1:
		return nil, field.Bad("Config.MaxStores", "%d is less than 1", c.MaxStores)
	}
	r := &Recorder{series: series, topics: newNames(c.MaxTopics), stores: newNames(c.MaxStores)}
	if len(c.Stores) == 0 {
		c.Stores = []string{""}
	}
	for _, name := range c.Stores {
		r.begin(r.stores.label(name))
	}
	return r, nil
}

// CheckBuckets returns an error unless bounds ascend.
func CheckBuckets(bounds []float64) error {
	for i := 1; i < len(bounds); i++ {
		if bounds[i] <= bounds[i-1] {
			return field.Bad("Config.Buckets", "%v follows %v; sort them", bounds[i], bounds[i-1])
		}
	}
	return nil
}

var outcomes = []outbox.Outcome{outbox.Ack, outbox.Retry, outbox.Release, outbox.Fail}

// The operations that hooks tell of.
const (
	opPublish   = "publish"
	opClaim     = "claim"
	opSettle    = "settle"
	opGroupRead = "group_read"
)

// begin makes the series of a store that need no topic.
func (r *Recorder) begin(store string) {
	for _, outcome := range outcomes {
		r.series(settled, store, outcome.String())
	}
	for _, operation := range []string{opPublish, opClaim, opSettle, opGroupRead} {
		r.series(operations, store, operation)
		r.series(failures, store, operation)
	}
	for _, status := range []string{"completed", "failed", "cancelled"} {
		r.series(joins, store, status)
	}
	for _, m := range []*Metric{refused, reaped, wentBack} {
		r.series(m, store)
	}
}
