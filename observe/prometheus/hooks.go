package prometheus

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	outbox "github.com/incursa/watermill-outbox"
)

// Hooks return hooks for any number of outboxes, which their Store tells apart.
func (m *Metrics) Hooks() outbox.Hooks {
	return outbox.Hooks{
		OnPublish: m.onPublish, OnClaim: m.onClaim, OnSettle: m.onSettle, OnHandled: m.onHandled, OnReap: m.onReap,
		OnGroupRead: m.onGroupRead, OnGroupSettle: m.onHandled, OnBacklog: m.onBacklog,
		OnHandlerTimeout: func(e outbox.HandledEvent) {
			m.timeouts.WithLabelValues(m.stores.label(e.Store), m.topics.label(e.Topic)).Inc()
		},
		OnLogWentBack: func(e *outbox.LogWentBackError) { m.wentBack.WithLabelValues(m.stores.label(e.Store)).Inc() },
		OnJoinEnd: func(e outbox.JoinEvent) {
			m.joins.WithLabelValues(m.stores.label(e.Store), e.Status.String()).Inc()
		},
	}
}

// called counts a call to the database.
func (m *Metrics) called(store, operation string, took time.Duration, err error) {
	m.operations.WithLabelValues(store, operation).Observe(took.Seconds())
	failed := m.errors.WithLabelValues(store, operation)
	if err != nil {
		failed.Inc()
	}
}

func (m *Metrics) onPublish(e outbox.PublishEvent) {
	store := m.stores.label(e.Store)
	m.called(store, opPublish, e.Took, e.Err)
	for i, topic := range e.Topics {
		published := m.published.WithLabelValues(store, m.topics.label(topic))
		if e.Err == nil {
			published.Add(float64(e.Counts[i]))
		}
	}
}

func (m *Metrics) onClaim(e outbox.ClaimEvent) {
	store := m.stores.label(e.Store)
	m.called(store, opClaim, e.Took, e.Err)
	for topic, n := range e.Topics {
		m.claimed.WithLabelValues(store, m.topics.label(topic)).Add(float64(n))
	}
}

func (m *Metrics) onSettle(e outbox.SettleEvent) {
	store := m.stores.label(e.Store)
	m.called(store, opSettle, e.Took, e.Err)
	if e.Err != nil {
		return
	}
	// Refused receipts are among the outcomes, which do not say of which.
	lost := e.Refused + e.Unknown
	for _, outcome := range outcomes {
		n := e.Outcomes[outcome]
		taken := min(n, lost)
		lost -= taken
		m.settled.WithLabelValues(store, outcome.String()).Add(float64(max(0, n-taken)))
	}
	m.refused.WithLabelValues(store).Add(float64(e.Refused))
}

func (m *Metrics) onReap(e outbox.ReapEvent) {
	m.reaped.WithLabelValues(m.stores.label(e.Store)).Add(float64(e.Messages))
}

type deliveryKey struct{ store, topic, group string }

// delivered are the series of a topic's deliveries.
type delivered struct {
	outcomes [outbox.Fail + 1]prometheus.Counter
	took     prometheus.Observer
	wait     prometheus.Observer
}

func (m *Metrics) onHandled(e outbox.HandledEvent) {
	d := m.delivery(deliveryKey{e.Store, e.Topic, e.Group})
	if e.Outcome >= 0 && int(e.Outcome) < len(d.outcomes) {
		d.outcomes[e.Outcome].Inc()
	}
	d.took.Observe(e.Took.Seconds())
	if e.Attempt == 1 {
		d.wait.Observe(e.Wait.Seconds())
	}
}

func (m *Metrics) delivery(key deliveryKey) *delivered {
	if d, known := m.deliveries.Load(key); known {
		return d.(*delivered) //nolint:errcheck // nothing else is in it
	}
	store, topic := m.stores.label(key.store), m.topics.label(key.topic)
	key.store, key.topic = store, topic // so that there are no more of them than labels
	if d, known := m.deliveries.Load(key); known {
		return d.(*delivered) //nolint:errcheck // nothing else is in it
	}
	d := &delivered{
		took: m.handler.WithLabelValues(store, topic, key.group),
		wait: m.wait.WithLabelValues(store, topic),
	}
	for _, outcome := range outcomes {
		d.outcomes[outcome] = m.delivered.WithLabelValues(store, topic, key.group, outcome.String())
	}
	m.timeouts.WithLabelValues(store, topic)
	m.deliveries.Store(key, d)
	return d
}

func (m *Metrics) onGroupRead(e outbox.GroupReadEvent) {
	store, topic := m.stores.label(e.Store), m.topics.label(e.Topic)
	m.called(store, opGroupRead, e.Took, e.Err)
	if e.Err != nil {
		return
	}
	m.read.WithLabelValues(store, topic, e.Group).Add(float64(e.Messages))
	m.lag.WithLabelValues(store, topic, e.Group).Set(e.Lag.Seconds())
	m.position.WithLabelValues(store, topic, e.Group).Set(float64(e.Position))
}

// onBacklog sets the gauges of a store. Topics that share a label are added up, and their oldest message counts.
func (m *Metrics) onBacklog(topics []outbox.TopicBacklog) {
	type series struct{ store, topic string }
	sums := map[series]outbox.TopicBacklog{}
	for _, t := range topics {
		key := series{m.stores.label(t.Store), m.topics.label(t.Topic)}
		sum := sums[key]
		sum.Waiting += t.Waiting
		sum.BlockedStreams += t.BlockedStreams
		sum.Age = max(sum.Age, t.Age)
		sum.Handled = sum.Handled || t.Handled
		sums[key] = sum
	}
	for key, sum := range sums {
		m.backlog.WithLabelValues(key.store, key.topic).Set(float64(sum.Waiting))
		m.oldest.WithLabelValues(key.store, key.topic).Set(sum.Age.Seconds())
		m.blocked.WithLabelValues(key.store, key.topic).Set(float64(sum.BlockedStreams))
		m.checkedAt.WithLabelValues(key.store).SetToCurrentTime()
		// Another Subscriber of this process may handle what this one does not.
		if handled := m.handled.WithLabelValues(key.store, key.topic); sum.Handled {
			handled.Set(1)
		}
	}
}
