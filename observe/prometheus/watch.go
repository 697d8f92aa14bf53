package prometheus

import (
	"maps"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/incursa/watermill-outbox/forwarder"
	"github.com/incursa/watermill-outbox/stores"
)

// watches are asked when Prometheus scrapes.
type watches struct {
	mu       sync.Mutex
	inFlight map[string]func() map[string]int
	stores   []func() []stores.StoreStatus
	known    map[[2]string]bool // stores and topics that had messages in flight, so that they fall to 0
}

// OnForwarder returns a function for a forwarder's Config.OnState. The name tells it from others of the process.
func (m *Metrics) OnForwarder(name string) func(forwarder.State) {
	open := m.open.WithLabelValues(name)
	return func(s forwarder.State) {
		if s == forwarder.Open {
			open.Set(1)
		} else {
			open.Set(0)
		}
	}
}

// WatchInFlight has each scrape ask a Subscriber's InFlight. A second call for the store replaces the first, and nil ends it.
func (m *Metrics) WatchInFlight(store string, inFlight func() map[string]int) {
	m.watches.mu.Lock()
	defer m.watches.mu.Unlock()
	watched := maps.Clone(m.watches.inFlight)
	if watched == nil {
		watched = map[string]func() map[string]int{}
	}
	watched[store] = inFlight
	if inFlight == nil {
		delete(watched, store)
	}
	m.watches.inFlight = watched
}

// WatchStores has each scrape ask the Status of a Subscriber of the package stores.
func (m *Metrics) WatchStores(status func() []stores.StoreStatus) {
	m.watches.mu.Lock()
	defer m.watches.mu.Unlock()
	m.watches.stores = append(m.watches.stores[:len(m.watches.stores):len(m.watches.stores)], status)
}

func (w *watches) describe(m *Metrics, out chan<- *prometheus.Desc) {
	out <- m.inFlight
	out <- m.storeUp
	out <- m.storeInFlight
}

func (w *watches) collect(m *Metrics, out chan<- prometheus.Metric) {
	w.mu.Lock()
	inFlight, all := w.inFlight, w.stores
	w.mu.Unlock()
	held := map[[2]string]int{}
	for store, ask := range inFlight {
		for topic, n := range ask() {
			held[[2]string{m.stores.label(store), m.topics.label(topic)}] += n
		}
	}
	w.mu.Lock()
	if w.known == nil {
		w.known = map[[2]string]bool{}
	}
	for labels := range held {
		w.known[labels] = true
	}
	for labels := range w.known {
		held[labels] += 0
	}
	w.mu.Unlock()
	for labels, n := range held {
		out <- prometheus.MustNewConstMetric(m.inFlight, prometheus.GaugeValue, float64(n), labels[0], labels[1])
	}
	up, of := map[string]float64{}, map[string]int{}
	for _, ask := range all {
		for _, s := range ask() {
			store := m.stores.label(s.Store)
			if _, known := up[store]; !known {
				up[store] = 1
			}
			if s.State == stores.Open {
				up[store] = 0
			}
			of[store] += s.InFlight
		}
	}
	for store, is := range up {
		out <- prometheus.MustNewConstMetric(m.storeUp, prometheus.GaugeValue, is, store)
		out <- prometheus.MustNewConstMetric(m.storeInFlight, prometheus.GaugeValue, float64(of[store]), store)
	}
}
