package outbox

import (
	"maps"
	"sync"
)

// maxUnsettled is how many answered messages may wait to be settled before claiming pauses.
const maxUnsettled = 4 * maxBatch

// window counts what a Subscriber has out, and decides how much more it may claim.
type window struct {
	max, perTopic int
	maxBytes      int64
	allowed       int // of max: less while there are too few connections to renew so many leases

	mu        sync.Mutex
	out       map[string]int // by topic: claimed and not yet answered
	total     int
	unsettled int // answered, and not yet settled
	bytes     int64
	freed     chan struct{}
}

// An allowance is what may be claimed now. A limit of 0 means nothing.
type allowance struct {
	quotas []TopicQuota // in the order of topics
	limit  int
	bytes  int64
	allFit bool // otherwise the first message may be larger
}

func newWindow(limit, perTopic int, maxBytes int64) *window {
	return &window{max: limit, perTopic: perTopic, maxBytes: maxBytes, allowed: limit, out: map[string]int{}, freed: make(chan struct{}, 1)}
}

// allow returns what may be claimed now. A quarter of the window is reserved for topics that have nothing out, one message
// each: topics whose handlers are stuck cannot starve the others.
//
// In bytes, claims wait until half of the window is free. The first message of a claim may then be of any size, so that
// small ones do not keep a large one waiting for ever.
func (w *window) allow(topics []string) (a allowance) {
	w.mu.Lock()
	defer w.mu.Unlock()
	limit := min(w.allowed-w.total, maxUnsettled-w.unsettled, maxBatch)
	if limit <= 0 || w.bytes >= w.maxBytes {
		return allowance{}
	}
	full := w.bytes > w.maxBytes/2
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
		} else if full {
			continue
		}
		if full {
			quota = 1
		}
		if quota = min(quota, w.perTopic-w.out[topic]); quota > 0 {
			a.quotas = append(a.quotas, TopicQuota{topic, quota})
		}
	}
	if len(a.quotas) == 0 {
		return allowance{}
	}
	a.limit, a.bytes, a.allFit = limit, w.maxBytes-w.bytes, full
	if len(topics) > 1 && !full {
		a.bytes -= w.maxBytes / 4
	}
	return a
}

// inFlight returns a copy of what is out.
func (w *window) inFlight() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.out)
}

func (w *window) claimed(deliveries []*Delivery) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range deliveries {
		w.out[d.Topic()]++
		w.bytes += d.claimed.size
	}
	w.total += len(deliveries)
}

// answered makes room for others; the deliveries then count as unsettled.
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

func (w *window) settled(deliveries []*Delivery) {
	w.mu.Lock()
	w.unsettled -= len(deliveries)
	for _, d := range deliveries {
		w.bytes -= d.claimed.size
	}
	w.mu.Unlock()
	w.signal()
}

// narrow halves how much may be out.
func (w *window) narrow() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.allowed = max(1, w.allowed/2)
}

// widen undoes narrow step by step.
func (w *window) widen() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.allowed = min(w.max, w.allowed+1+w.allowed/8)
}

func (w *window) signal() { notify(w.freed) }

// notify leaves a note in a channel that has room for one.
func notify(note chan<- struct{}) {
	select {
	case note <- struct{}{}:
	default:
	}
}
