package measure

import "strings"

// A Kind says what becomes of a metric's values.
type Kind int

// Kinds of metrics.
const (
	Counter   Kind = iota // they are added up
	Histogram             // they are counted by size
	Gauge                 // the last one counts
)

// A Metric is named as OpenTelemetry does it.
type Metric struct {
	Name   string
	Unit   string // by UCUM; what is in braces is for people
	Kind   Kind
	Labels []string
	Help   string
}

// Prometheus is the name that Prometheus has for the metric, and OpenTelemetry's exporters to it.
func (m *Metric) Prometheus() string {
	name := strings.ReplaceAll(m.Name, ".", "_")
	if m.Unit == "s" {
		name += "_seconds"
	}
	if m.Kind == Counter {
		name += "_total"
	}
	return name
}

// Buckets are the default bounds of histograms, in seconds.
var Buckets = []float64{.001, .003, .01, .03, .1, .3, 1, 3, 10, 30, 100, 300}

// Labels.
const (
	store     = "store"
	topic     = "topic"
	group     = "group"
	outcome   = "outcome"
	operation = "operation"
	status    = "status"
	relay     = "forwarder"
)

// All are all metrics.
var All []*Metric

func metric(kind Kind, name, unit, help string, labels ...string) *Metric {
	m := &Metric{name, unit, kind, labels, help}
	All = append(All, m)
	return m
}

var (
	published = metric(Counter, "outbox.messages.published", "{message}", "Messages enqueued, even in transactions that were rolled back.", store, topic)
	claimed   = metric(Counter, "outbox.messages.claimed", "{message}", "Messages taken from the queue.", store, topic)
	settled   = metric(Counter, "outbox.messages.settled", "{message}", "Messages settled, by outcome.", store, outcome)
	refused   = metric(Counter, "outbox.messages.refused", "{message}", "Messages that were no longer held when they were to be settled: their leases were lost.", store)
	reaped    = metric(Counter, "outbox.messages.reaped", "{message}", "Messages ready again because the leases of their workers had expired.", store)
	delivered = metric(Counter, "outbox.deliveries", "{delivery}", "Deliveries to handlers that ended, by outcome; group is empty for the queue.", store, topic, group, outcome)
	timeouts  = metric(Counter, "outbox.handler.timeouts", "{message}", "Messages taken from handlers that did not ack or nack in time.", store, topic)
	handler   = metric(Histogram, "outbox.handler.duration", "s", "How long handlers had messages.", store, topic, group)
	wait      = metric(Histogram, "outbox.delivery.wait", "s", "From a message's due time to its first handler.", store, topic)

	backlog   = metric(Gauge, "outbox.backlog.messages", "{message}", "Due messages, counted up to 10,000 a topic.", store, topic)
	oldest    = metric(Gauge, "outbox.backlog.oldest_age", "s", "How long the oldest message has been due.", store, topic)
	dead      = metric(Gauge, "outbox.dead_letters", "{message}", "Messages that have failed for good, among the newest 10,000 of the outbox.", store, topic)
	blocked   = metric(Gauge, "outbox.streams.blocked", "{stream}", "Streams behind a message that failed for good, counted up to 10,000 a topic.", store, topic)
	handled   = metric(Gauge, "outbox.topic.handled", "", "1 if a Subscriber of this process handles the topic.", store, topic)
	paused    = metric(Gauge, "outbox.topic.paused", "", "1 if an operator has paused the topic.", store, topic)
	checkedAt = metric(Gauge, "outbox.backlog.checked_timestamp", "s", "When a Subscriber of this process last looked at all topics.", store)
	inFlight  = metric(Gauge, "outbox.in_flight.messages", "{message}", "Messages that handlers of this process have.", store, topic)

	joins = metric(Counter, "outbox.joins.ended", "{join}", "Joins that ended, by status.", store, status)

	read     = metric(Counter, "outbox.log.messages_read", "{message}", "Messages read from the log for consumer groups.", store, topic, group)
	lag      = metric(Gauge, "outbox.log.lag", "s", "How long the next message has been in the log when a group read it.", store, topic, group)
	position = metric(Gauge, "outbox.log.position", "", "The position in the log after which a group last read.", store, topic, group)
	wentBack = metric(Counter, "outbox.log.went_back", "{time}", "How often a log was found to be older than what a group had read.", store)

	operations = metric(Histogram, "outbox.operation.duration", "s", "How long calls to the database took.", store, operation)
	failures   = metric(Counter, "outbox.operation.errors", "{error}", "Calls to the database that failed.", store, operation)

	open          = metric(Gauge, "outbox.forwarder.open", "", "1 while a forwarder can publish nothing.", relay)
	storeUp       = metric(Gauge, "outbox.store.up", "", "0 while a store is left alone because its database failed.", store)
	storeInFlight = metric(Gauge, "outbox.store.in_flight_messages", "{message}", "Messages of a store that are claimed and not answered, or being claimed.", store)
)

// Watched are the metrics that Recorder.Watch tells.
var Watched = []*Metric{inFlight, storeUp, storeInFlight}
