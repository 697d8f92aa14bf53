package measure

import (
	"time"

	outbox "github.com/incursa/watermill-outbox"
)

// Hooks return hooks for any number of outboxes, which their Store tells apart.
func (r *Recorder) Hooks() outbox.Hooks {
	return outbox.Hooks{
		OnPublish: r.onPublish, OnClaim: r.onClaim, OnSettle: r.onSettle, OnHandled: r.onHandled, OnReap: r.onReap,
		OnGroupRead: r.onGroupRead, OnGroupSettle: r.onHandled, OnBacklog: r.onBacklog,
		OnHandlerTimeout: func(e outbox.HandledEvent) { r.series(timeouts, r.stores.label(e.Store), r.topics.label(e.Topic))(1) },
		OnLogWentBack:    func(e *outbox.LogWentBackError) { r.series(wentBack, r.stores.label(e.Store))(1) },
		OnJoinEnd:        func(e outbox.JoinEvent) { r.series(joins, r.stores.label(e.Store), e.Status.String())(1) },
	}
}

// called counts a call to the database.
func (r *Recorder) called(store, operation string, took time.Duration, err error) {
	r.series(operations, store, operation)(took.Seconds())
	if failed := r.series(failures, store, operation); err != nil {
		failed(1)
	}
}

func (r *Recorder) onPublish(e outbox.PublishEvent) {
	store := r.stores.label(e.Store)
	r.called(store, opPublish, e.Took, e.Err)
	for i, topic := range e.Topics {
		if published := r.series(published, store, r.topics.label(topic)); e.Err == nil {
			published(float64(e.Counts[i]))
		}
	}
}

func (r *Recorder) onClaim(e outbox.ClaimEvent) {
	store := r.stores.label(e.Store)
	r.called(store, opClaim, e.Took, e.Err)
	for topic, n := range e.Topics {
		r.series(claimed, store, r.topics.label(topic))(float64(n))
	}
}

func (r *Recorder) onSettle(e outbox.SettleEvent) {
	store := r.stores.label(e.Store)
	r.called(store, opSettle, e.Took, e.Err)
	if e.Err != nil {
		return
	}
	// Refused receipts are among the outcomes, which do not say of which.
	lost := e.Refused + e.Unknown
	for _, outcome := range outcomes {
		n := e.Outcomes[outcome]
		taken := min(n, lost)
		lost -= taken
		r.series(settled, store, outcome.String())(float64(max(0, n-taken)))
	}
	r.series(refused, store)(float64(e.Refused))
}

func (r *Recorder) onReap(e outbox.ReapEvent) {
	r.series(reaped, r.stores.label(e.Store))(float64(e.Messages))
}

type deliveryKey struct{ store, topic, group string }

// A delivery has the series of a topic's deliveries.
type delivery struct {
	outcomes   [outbox.Fail + 1]func(float64)
	took, wait func(float64)
}

func (r *Recorder) onHandled(e outbox.HandledEvent) {
	d := r.delivery(deliveryKey{e.Store, e.Topic, e.Group})
	if e.Outcome >= 0 && int(e.Outcome) < len(d.outcomes) {
		d.outcomes[e.Outcome](1)
	}
	d.took(e.Took.Seconds())
	if e.Attempt == 1 {
		d.wait(e.Wait.Seconds())
	}
}

func (r *Recorder) delivery(key deliveryKey) *delivery {
	if d, known := r.deliveries.Load(key); known {
		return d.(*delivery) //nolint:errcheck // nothing else is in it
	}
	key.store, key.topic = r.stores.label(key.store), r.topics.label(key.topic) // so that there are no more of them than labels
	if d, known := r.deliveries.Load(key); known {
		return d.(*delivery) //nolint:errcheck // nothing else is in it
	}
	d := &delivery{took: r.series(handler, key.store, key.topic, key.group), wait: r.series(wait, key.store, key.topic)}
	for _, outcome := range outcomes {
		d.outcomes[outcome] = r.series(delivered, key.store, key.topic, key.group, outcome.String())
	}
	r.series(timeouts, key.store, key.topic)
	r.deliveries.Store(key, d)
	return d
}

func (r *Recorder) onGroupRead(e outbox.GroupReadEvent) {
	store, topic := r.stores.label(e.Store), r.topics.label(e.Topic)
	r.called(store, opGroupRead, e.Took, e.Err)
	if e.Err != nil {
		return
	}
	r.series(read, store, topic, e.Group)(float64(e.Messages))
	r.series(lag, store, topic, e.Group)(e.Lag.Seconds())
	r.series(position, store, topic, e.Group)(float64(e.Position))
}

// onBacklog sets the gauges of a store. Topics that share a label are added up, and their oldest message counts.
func (r *Recorder) onBacklog(topics []outbox.TopicBacklog) {
	type labels struct{ store, topic string }
	sums, stopped := map[labels]outbox.TopicBacklog{}, map[labels]bool{}
	for _, t := range topics {
		key := labels{r.stores.label(t.Store), r.topics.label(t.Topic)}
		sum := sums[key]
		sum.Waiting += t.Waiting
		sum.Failed += t.Failed
		sum.BlockedStreams += t.BlockedStreams
		sum.Age = max(sum.Age, t.Age)
		sum.Handled = sum.Handled || t.Handled
		sums[key] = sum
		stopped[key] = stopped[key] || !t.PausedSince.IsZero()
	}
	for key, sum := range sums {
		r.series(backlog, key.store, key.topic)(float64(sum.Waiting))
		r.series(oldest, key.store, key.topic)(sum.Age.Seconds())
		r.series(dead, key.store, key.topic)(float64(sum.Failed))
		r.series(blocked, key.store, key.topic)(float64(sum.BlockedStreams))
		r.series(handled, key.store, key.topic)(is(sum.Handled))
		r.series(paused, key.store, key.topic)(is(stopped[key]))
		r.series(checkedAt, key.store)(float64(time.Now().UnixMilli()) / 1000)
	}
}

func is(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
