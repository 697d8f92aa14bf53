package outbox

import "sync"

// maxUnsettled is how many answered messages may wait to be settled before claiming pauses: settling has fallen behind.
const maxUnsettled = 4 * maxBatch

// window counts what a Subscriber has out and says how much more it may claim.
type window struct {
	max, perTopic int
	allowed       int // of max: fewer while connections are too few to renew the leases of so many

	mu        sync.Mutex
	out       map[string]int // by topic: claimed and not yet answered
	total     int
	unsettled int // answered, and not yet settled
	freed     chan struct{}
}

func newWindow(limit, perTopic int) *window {
	return &window{max: limit, perTopic: perTopic, allowed: limit, out: map[string]int{}, freed: make(chan struct{}, 1)}
}

// quotas says what may be claimed now, in the order of topics. A quarter of the window is kept for topics that have
// nothing out, one message each: topics whose handlers are stuck cannot starve the others.
func (w *window) quotas(topics []string) (quotas []TopicQuota, limit int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	limit = min(w.allowed-w.total, maxUnsettled-w.unsettled, maxBatch)
	if limit <= 0 {
		return nil, 0
	}
	idle := 0
	for _, topic := range topics {
		if w.out[topic] == 0 {
			idle++
		}
	}
	kept := min(idle, w.allowed/4)
	for _, topic := range topics {
		quota := limit - kept
		if w.out[topic] == 0 {
			quota = max(quota, 1)
		}
		if quota = min(quota, w.perTopic-w.out[topic]); quota > 0 {
			quotas = append(quotas, TopicQuota{topic, quota})
		}
	}
	if len(quotas) == 0 {
		return nil, 0
	}
	return quotas, limit
}

func (w *window) claimed(deliveries []*Delivery) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range deliveries {
		w.out[d.Topic()]++
	}
	w.total += len(deliveries)
}

// answered makes room for others; the deliveries are unsettled from now on.
func (w *window) answered(deliveries []*Delivery) {
	w.mu.Lock()
	for _, d := range deliveries {
		if w.out[d.Topic()]--; w.out[d.Topic()] == 0 {
			delete(w.out, d.Topic())
		}
	}
	w.total -= len(deliveries)
	w.unsettled += len(deliveries)
	w.mu.Unlock()
	w.signal()
}

func (w *window) settled(n int) {
	w.mu.Lock()
	w.unsettled -= n
	w.mu.Unlock()
	w.signal()
}

// narrow halves what may be out.
func (w *window) narrow() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.allowed = max(1, w.allowed/2)
}

// widen takes that back bit by bit.
func (w *window) widen() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.allowed = min(w.max, w.allowed+1+w.allowed/8)
}

func (w *window) signal() { notify(w.freed) }

// notify leaves a note in a channel with room for one.
func notify(note chan<- struct{}) {
	select {
	case note <- struct{}{}:
	default:
	}
}
