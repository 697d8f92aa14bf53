package prometheus

import (
	"github.com/prometheus/client_golang/prometheus"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/forwarder"
	"github.com/incursa/watermill-outbox/internal/measure"
	"github.com/incursa/watermill-outbox/stores"
)

// Metrics are those of all outboxes of a process. Register them once. They are safe for concurrent use.
type Metrics struct {
	recorder *measure.Recorder
	vectors  map[*measure.Metric]vector
	watched  map[*measure.Metric]*prometheus.Desc
}

var _ prometheus.Collector = (*Metrics)(nil)

// A vector has the series of a metric.
type vector interface {
	prometheus.Collector
	series(labels []string) func(float64)
}

type (
	counter   struct{ *prometheus.CounterVec }
	histogram struct{ *prometheus.HistogramVec }
	gauge     struct{ *prometheus.GaugeVec }
)

func (v counter) series(labels []string) func(float64)   { return v.WithLabelValues(labels...).Add }
func (v histogram) series(labels []string) func(float64) { return v.WithLabelValues(labels...).Observe }
func (v gauge) series(labels []string) func(float64)     { return v.WithLabelValues(labels...).Set }

// New returns metrics that nobody has registered. It returns an *outbox.FieldError that names a bad field.
func New(config Config) (*Metrics, error) {
	if len(config.Buckets) == 0 {
		config.Buckets = measure.Buckets
	}
	if err := measure.CheckBuckets(config.Buckets); err != nil {
		return nil, err
	}
	m := &Metrics{vectors: map[*measure.Metric]vector{}, watched: map[*measure.Metric]*prometheus.Desc{}}
	for _, metric := range measure.Watched {
		m.watched[metric] = prometheus.NewDesc(metric.Prometheus(), metric.Help, metric.Labels, config.ConstLabels)
	}
	for _, metric := range measure.All {
		if m.watched[metric] == nil {
			m.vectors[metric] = newVector(metric, config)
		}
	}
	var err error
	m.recorder, err = measure.New(measure.Config{Stores: config.Stores, MaxTopics: config.MaxTopics, MaxStores: config.MaxStores},
		func(metric *measure.Metric, labels ...string) func(float64) { return m.vectors[metric].series(labels) })
	if err != nil {
		return nil, err
	}
	return m, nil
}

func newVector(m *measure.Metric, c Config) vector {
	options := prometheus.Opts{Name: m.Prometheus(), Help: m.Help, ConstLabels: c.ConstLabels}
	switch m.Kind {
	case measure.Counter:
		return counter{prometheus.NewCounterVec(prometheus.CounterOpts(options), m.Labels)}
	case measure.Histogram:
		return histogram{prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: options.Name, Help: options.Help, ConstLabels: options.ConstLabels, Buckets: c.Buckets,
		}, m.Labels)}
	default:
		return gauge{prometheus.NewGaugeVec(prometheus.GaugeOpts(options), m.Labels)}
	}
}

// Hooks return hooks for any number of outboxes, which their Store tells apart.
func (m *Metrics) Hooks() outbox.Hooks { return m.recorder.Hooks() }

// OnForwarder returns a function for a forwarder's Config.OnState. The name tells it from others of the process.
func (m *Metrics) OnForwarder(name string) func(forwarder.State) { return m.recorder.OnForwarder(name) }

// WatchInFlight has each scrape ask a Subscriber's InFlight. A second call for the store replaces the first, and nil ends it.
func (m *Metrics) WatchInFlight(store string, inFlight func() map[string]int) {
	m.recorder.WatchInFlight(store, inFlight)
}

// WatchStores has each scrape ask the Status of a Subscriber of the package stores.
func (m *Metrics) WatchStores(status func() []stores.StoreStatus) { m.recorder.WatchStores(status) }

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(out chan<- *prometheus.Desc) {
	for _, v := range m.vectors {
		v.Describe(out)
	}
	for _, d := range m.watched {
		out <- d
	}
}

// Collect implements prometheus.Collector. It asks no database.
func (m *Metrics) Collect(out chan<- prometheus.Metric) {
	for _, v := range m.vectors {
		v.Collect(out)
	}
	m.recorder.Watch(func(metric *measure.Metric, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(m.watched[metric], prometheus.GaugeValue, value, labels...)
	})
}
