package prometheus

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	outbox "github.com/incursa/watermill-outbox"
)

// Metrics are those of all outboxes of a process. Register them once. They are safe for concurrent use.
type Metrics struct {
	config Config
	topics *names
	stores *names
	vectors
	watches watches

	deliveries sync.Map // deliveryKey → *delivered: handlers run often, and looking labels up is slow
}

var _ prometheus.Collector = (*Metrics)(nil)

// New returns metrics that nobody has registered. It returns an *outbox.FieldError that names a bad field.
func New(config Config) (*Metrics, error) {
	config.setDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	m := &Metrics{config: config, topics: newNames(config.MaxTopics), stores: newNames(config.MaxStores), vectors: newVectors(config)}
	for _, store := range config.Stores {
		m.begin(m.stores.label(store))
	}
	return m, nil
}

var (
	outcomes   = []outbox.Outcome{outbox.Ack, outbox.Retry, outbox.Release, outbox.Fail}
	operations = []string{opPublish, opClaim, opSettle, opGroupRead}
)

const (
	opPublish   = "publish"
	opClaim     = "claim"
	opSettle    = "settle"
	opGroupRead = "group_read"
)

// begin makes the series of a store that need no topic.
func (m *Metrics) begin(store string) {
	for _, outcome := range outcomes {
		m.settled.WithLabelValues(store, outcome.String())
	}
	for _, operation := range operations {
		m.operations.WithLabelValues(store, operation)
		m.errors.WithLabelValues(store, operation)
	}
	for _, status := range []string{"completed", "failed", "cancelled"} {
		m.joins.WithLabelValues(store, status)
	}
	m.refused.WithLabelValues(store)
	m.reaped.WithLabelValues(store)
	m.wentBack.WithLabelValues(store)
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(out chan<- *prometheus.Desc) {
	for _, c := range m.all() {
		c.Describe(out)
	}
	m.watches.describe(m, out)
}

// Collect implements prometheus.Collector. It asks no database.
func (m *Metrics) Collect(out chan<- prometheus.Metric) {
	for _, c := range m.all() {
		c.Collect(out)
	}
	m.watches.collect(m, out)
}

// vectors are the metrics that events change.
type vectors struct {
	published, claimed, settled, delivered, timeouts, refused, reaped, joins, read, wentBack, errors *prometheus.CounterVec
	handler, wait, operations                                                                        *prometheus.HistogramVec
	backlog, oldest, handled, blocked, checkedAt, lag, position, open                                *prometheus.GaugeVec
	inFlight, storeUp, storeInFlight                                                                 *prometheus.Desc
}

func newVectors(c Config) vectors {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: c.ConstLabels}, labels)
	}
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, ConstLabels: c.ConstLabels, Buckets: c.Buckets}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: c.ConstLabels}, labels)
	}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, c.ConstLabels)
	}
	const store, topic, group, outcome, operation = "store", "topic", "group", "outcome", "operation"
	return vectors{
		published: counter("outbox_messages_published_total", "Messages enqueued, even in transactions that were rolled back.", store, topic),
		claimed:   counter("outbox_messages_claimed_total", "Messages taken from the queue.", store, topic),
		settled:   counter("outbox_messages_settled_total", "Messages settled, by outcome.", store, outcome),
		refused:   counter("outbox_messages_refused_total", "Messages that were no longer held when they were to be settled: their leases were lost.", store),
		reaped:    counter("outbox_messages_reaped_total", "Messages ready again because the leases of their workers had expired.", store),
		delivered: counter("outbox_deliveries_total", "Deliveries to handlers that ended, by outcome; group is empty for the queue.", store, topic, group, outcome),
		timeouts:  counter("outbox_handler_timeouts_total", "Messages taken from handlers that did not ack or nack in time.", store, topic),
		joins:     counter("outbox_joins_ended_total", "Joins that ended, by status.", store, "status"),
		read:      counter("outbox_log_messages_read_total", "Messages read from the log for consumer groups.", store, topic, group),
		wentBack:  counter("outbox_log_went_back_total", "How often a log was found to be older than what a group had read.", store),
		errors:    counter("outbox_operation_errors_total", "Calls to the database that failed.", store, operation),

		handler:    histogram("outbox_handler_duration_seconds", "How long handlers had messages.", store, topic, group),
		wait:       histogram("outbox_delivery_wait_seconds", "From a message's due time to its first handler.", store, topic),
		operations: histogram("outbox_operation_duration_seconds", "How long calls to the database took.", store, operation),

		backlog:   gauge("outbox_backlog_messages", "Due messages, counted up to 10,000 a topic.", store, topic),
		oldest:    gauge("outbox_backlog_oldest_age_seconds", "How long the oldest message has been due.", store, topic),
		handled:   gauge("outbox_topic_handled", "1 if a Subscriber of this process handles the topic.", store, topic),
		blocked:   gauge("outbox_streams_blocked", "Streams behind a message that failed for good, counted up to 10,000 a topic.", store, topic),
		checkedAt: gauge("outbox_backlog_checked_timestamp_seconds", "When a Subscriber of this process last looked at all topics.", store),
		lag:       gauge("outbox_log_lag_seconds", "How long the next message has been in the log when a group read it.", store, topic, group),
		position:  gauge("outbox_log_position", "The position in the log after which a group last read.", store, topic, group),
		open:      gauge("outbox_forwarder_open", "1 while a forwarder can publish nothing.", "forwarder"),

		inFlight:      desc("outbox_in_flight_messages", "Messages that handlers of this process have.", store, topic),
		storeUp:       desc("outbox_store_up", "0 while a store is left alone because its database failed.", store),
		storeInFlight: desc("outbox_store_in_flight_messages", "Messages of a store that are claimed and not answered, or being claimed.", store),
	}
}

func (v *vectors) all() []prometheus.Collector {
	return []prometheus.Collector{
		v.published, v.claimed, v.settled, v.refused, v.reaped, v.delivered, v.timeouts, v.joins, v.read, v.wentBack, v.errors,
		v.handler, v.wait, v.operations, v.backlog, v.oldest, v.handled, v.blocked, v.checkedAt, v.lag, v.position, v.open,
	}
}
