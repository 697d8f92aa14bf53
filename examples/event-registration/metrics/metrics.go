// Package metrics is what Prometheus reads at /metrics: the service's own figures, and those of its outbox.
package metrics

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	outbox "github.com/incursa/watermill-outbox"
	observe "github.com/incursa/watermill-outbox/observe/prometheus"
)

// Metrics are those of a process.
type Metrics struct {
	registry *prometheus.Registry
	outbox   *observe.Metrics

	inFlight   prometheus.Gauge
	requests   *prometheus.CounterVec
	duration   *prometheus.HistogramVec
	changes    *prometheus.CounterVec
	replays    *prometheus.CounterVec
	unreadable *prometheus.CounterVec
	redis      *prometheus.CounterVec
	cache      *prometheus.CounterVec
}

// New returns metrics in a registry of their own.
func New() (*Metrics, error) {
	library, err := observe.New(observe.Config{})
	if err != nil {
		return nil, err
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &Metrics{
		registry: prometheus.NewRegistry(), outbox: library,
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{Name: "http_requests_in_flight", Help: "Requests that are being answered."}),
		requests: counter("http_requests_total", "Requests answered, by route and status.", "method", "route", "status"),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "http_request_duration_seconds", Help: "How long requests took, by route.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}}, []string{"method", "route"}),
		changes:    counter("registration_changes_total", "Joins, cancels, kicks, bans and unbans that were decided, by outcome: done, or why not.", "action", "outcome"),
		replays:    counter("registration_replays_total", "Requests answered with the stored response to an earlier one.", "action"),
		unreadable: counter("registration_unreadable_messages_total", "Messages moved to the dead letters of the broker.", "queue"),
		redis:      counter("registration_redis_errors_total", "Calls of Redis that failed, so that the service went on without it.", "use"),
		cache:      counter("registration_cache_reads_total", "Reads of the cache, by result: hit or miss.", "result"),
	}
	m.registry.MustRegister(library, m.inFlight, m.requests, m.duration, m.changes, m.replays, m.unreadable, m.redis, m.cache,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m, nil
}

// Handler serves them.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry})
}

// Gatherer is what Handler serves.
func (m *Metrics) Gatherer() prometheus.Gatherer { return m.registry }

// Hooks are for every configuration of the outbox.
func (m *Metrics) Hooks() outbox.Hooks { return m.outbox.Hooks() }

// Begin counts a request that is being answered, until end is called.
func (m *Metrics) Begin() (end func()) {
	m.inFlight.Inc()
	return m.inFlight.Dec
}

// Request counts an answered request. The route is the pattern that matched, never the path.
func (m *Metrics) Request(method, route string, status int, took time.Duration) {
	m.requests.WithLabelValues(method, route, strconv.Itoa(status)).Inc()
	m.duration.WithLabelValues(method, route).Observe(took.Seconds())
}

// Change counts a change that was decided; the outcome is done or the code of a problem.
func (m *Metrics) Change(action, outcome string) { m.changes.WithLabelValues(action, outcome).Inc() }

// Replay counts a request whose response was stored.
func (m *Metrics) Replay(action string) { m.replays.WithLabelValues(action).Inc() }

// Unreadable counts a message that went to the dead letters of the broker.
func (m *Metrics) Unreadable(queue string) { m.unreadable.WithLabelValues(queue).Inc() }

// RedisFailed counts a call of Redis that failed.
func (m *Metrics) RedisFailed(use string) { m.redis.WithLabelValues(use).Inc() }

// CacheRead counts a read of the cache.
func (m *Metrics) CacheRead(hit bool) {
	result := "miss"
	if hit {
		result = "hit"
	}
	m.cache.WithLabelValues(result).Inc()
}
