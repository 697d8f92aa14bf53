package otel

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/forwarder"
	"github.com/incursa/watermill-outbox/internal/measure"
	"github.com/incursa/watermill-outbox/stores"
)

// MetricsConfig configures Metrics.
type MetricsConfig struct {
	// MeterProvider has the readers. Defaults to the global one, as it is when NewMetrics is called.
	MeterProvider metric.MeterProvider

	// Stores are the names of the outboxes, Config.Store of each: their counters are there from the start, at 0, so that the
	// first event counts as an increase. Defaults to one without a name.
	Stores []string

	// MaxTopics is how many topics have an attribute of their own; the others share "other". Defaults to 200.
	MaxTopics int

	// MaxStores is the same for stores. Defaults to 500.
	MaxStores int

	// Buckets are the upper bounds of the histograms, in seconds. Defaults to 1 ms to 5 minutes, in steps of about 3.
	Buckets []float64
}

// Metrics are those of all outboxes of a process: the same as in observe/prometheus, by the names that OpenTelemetry's
// exporters to Prometheus turn into those. They are safe for concurrent use.
type Metrics struct{ recorder *measure.Recorder }

// NewMetrics returns metrics. It returns an *outbox.FieldError that names a bad field, or the error of the MeterProvider.
func NewMetrics(config MetricsConfig) (*Metrics, error) {
	if config.MeterProvider == nil {
		config.MeterProvider = otel.GetMeterProvider()
	}
	if len(config.Buckets) == 0 {
		config.Buckets = measure.Buckets
	}
	if err := measure.CheckBuckets(config.Buckets); err != nil {
		return nil, err
	}
	meter := config.MeterProvider.Meter(scope)
	instruments := map[*measure.Metric]instrument{}
	watched := map[*measure.Metric]metric.Float64ObservableGauge{}
	var failed []error
	for _, m := range measure.Watched {
		gauge, err := meter.Float64ObservableGauge(m.Name, metric.WithUnit(m.Unit), metric.WithDescription(m.Help))
		watched[m], failed = gauge, append(failed, err)
	}
	for _, m := range measure.All {
		if watched[m] == nil {
			i, err := newInstrument(meter, m, config.Buckets)
			instruments[m], failed = i, append(failed, err)
		}
	}
	if err := errors.Join(failed...); err != nil {
		return nil, err
	}
	recorder, err := measure.New(measure.Config{Stores: config.Stores, MaxTopics: config.MaxTopics, MaxStores: config.MaxStores},
		func(m *measure.Metric, labels ...string) func(float64) { return instruments[m](attributes(m, labels)) })
	if err != nil {
		return nil, err
	}
	_, err = meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		recorder.Watch(func(m *measure.Metric, value float64, labels ...string) {
			o.ObserveFloat64(watched[m], value, attributes(m, labels))
		})
		return nil
	}, observables(watched)...)
	if err != nil {
		return nil, err
	}
	return &Metrics{recorder}, nil
}

// An instrument finds a series of a metric.
type instrument func(metric.MeasurementOption) func(float64)

func newInstrument(meter metric.Meter, m *measure.Metric, buckets []float64) (instrument, error) {
	ctx := context.Background()
	switch m.Kind {
	case measure.Counter:
		counter, err := meter.Int64Counter(m.Name, metric.WithUnit(m.Unit), metric.WithDescription(m.Help))
		return func(of metric.MeasurementOption) func(float64) {
			options := []metric.AddOption{of}
			counter.Add(ctx, 0, options...)
			return func(n float64) { counter.Add(ctx, int64(n), options...) }
		}, err
	case measure.Histogram:
		histogram, err := meter.Float64Histogram(m.Name, metric.WithUnit(m.Unit), metric.WithDescription(m.Help), metric.WithExplicitBucketBoundaries(buckets...))
		return func(of metric.MeasurementOption) func(float64) {
			options := []metric.RecordOption{of}
			return func(value float64) { histogram.Record(ctx, value, options...) }
		}, err
	default:
		gauge, err := meter.Float64Gauge(m.Name, metric.WithUnit(m.Unit), metric.WithDescription(m.Help))
		return func(of metric.MeasurementOption) func(float64) {
			return func(value float64) { gauge.Record(ctx, value, of) }
		}, err
	}
}

func attributes(m *measure.Metric, labels []string) metric.MeasurementOption {
	pairs := make([]attribute.KeyValue, len(labels))
	for i, label := range labels {
		pairs[i] = attribute.String(m.Labels[i], label)
	}
	return metric.WithAttributeSet(attribute.NewSet(pairs...))
}

func observables(gauges map[*measure.Metric]metric.Float64ObservableGauge) (all []metric.Observable) {
	for _, g := range gauges {
		all = append(all, g)
	}
	return all
}

// Hooks return hooks for any number of outboxes, which their Store tells apart.
func (m *Metrics) Hooks() outbox.Hooks { return m.recorder.Hooks() }

// OnForwarder returns a function for a forwarder's Config.OnState. The name tells it from others of the process.
func (m *Metrics) OnForwarder(name string) func(forwarder.State) { return m.recorder.OnForwarder(name) }

// WatchInFlight has each collection ask a Subscriber's InFlight. A second call for the store replaces the first, and nil ends
// it.
func (m *Metrics) WatchInFlight(store string, inFlight func() map[string]int) {
	m.recorder.WatchInFlight(store, inFlight)
}

// WatchStores has each collection ask the Status of a Subscriber of the package stores.
func (m *Metrics) WatchStores(status func() []stores.StoreStatus) { m.recorder.WatchStores(status) }
