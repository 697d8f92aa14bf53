package measure

import (
	"maps"
	"sync"

	"github.com/incursa/watermill-outbox/forwarder"
	"github.com/incursa/watermill-outbox/stores"
)

// watches are asked when metrics are collected.
type watches struct {
	mu       sync.Mutex
	inFlight map[string]func() map[string]int
	stores   []func() []stores.StoreStatus
	known    map[[2]string]bool // stores and topics that had messages in flight, so that they fall to 0
}

// OnForwarder returns a function for a forwarder's Config.OnState. The name tells it from others of the process.
func (r *Recorder) OnForwarder(name string) func(forwarder.State) {
	open := r.series(open, name)
	open(0)
	return func(s forwarder.State) { open(is(s == forwarder.Open)) }
}

// WatchInFlight has each collection ask a Subscriber's InFlight. A second call for the store replaces the first, and nil ends
// it.
func (r *Recorder) WatchInFlight(store string, inFlight func() map[string]int) {
	r.watches.mu.Lock()
	defer r.watches.mu.Unlock()
	watched := maps.Clone(r.watches.inFlight)
	if watched == nil {
		watched = map[string]func() map[string]int{}
	}
	watched[store] = inFlight
	if inFlight == nil {
		delete(watched, store)
	}
	r.watches.inFlight = watched
}

// WatchStores has each collection ask the Status of a Subscriber of the package stores.
func (r *Recorder) WatchStores(status func() []stores.StoreStatus) {
	r.watches.mu.Lock()
	defer r.watches.mu.Unlock()
	r.watches.stores = append(r.watches.stores[:len(r.watches.stores):len(r.watches.stores)], status)
}

// Watch asks all that are watched, and tells their values.
func (r *Recorder) Watch(tell func(m *Metric, value float64, labels ...string)) {
	r.watches.mu.Lock()
	subscribers, all := r.watches.inFlight, r.watches.stores
	r.watches.mu.Unlock()
	held := map[[2]string]int{}
	for store, ask := range subscribers {
		for topic, n := range ask() {
			held[[2]string{r.stores.label(store), r.topics.label(topic)}] += n
		}
	}
	for labels, n := range r.watches.withEmpty(held) {
		tell(inFlight, float64(n), labels[0], labels[1])
	}
	up, of := map[string]bool{}, map[string]int{}
	for _, ask := range all {
		for _, s := range ask() {
			store := r.stores.label(s.Store)
			others, known := up[store]
			up[store] = (others || !known) && s.State != stores.Open
			of[store] += s.InFlight
		}
	}
	for store := range up {
		tell(storeUp, is(up[store]), store)
		tell(storeInFlight, float64(of[store]), store)
	}
}

// withEmpty adds what has ever been held.
func (w *watches) withEmpty(held map[[2]string]int) map[[2]string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.known == nil {
		w.known = map[[2]string]bool{}
	}
	for labels := range held {
		w.known[labels] = true
	}
	for labels := range w.known {
		held[labels] += 0
	}
	return held
}
