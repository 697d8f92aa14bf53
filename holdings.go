package outbox

import (
	"sync"
	"time"
)

// holdings are the messages whose lease a Subscriber has, from the claim until the settlement is in the database.
type holdings struct {
	mu      sync.Mutex
	renewed map[*Delivery]time.Time // when the lease was last given, to know which is due; the database decides the rest
}

func newHoldings() *holdings { return &holdings{renewed: map[*Delivery]time.Time{}} }

func (h *holdings) add(deliveries []*Delivery) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	for _, d := range deliveries {
		h.renewed[d] = now
	}
}

func (h *holdings) remove(deliveries []*Delivery) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range deliveries {
		delete(h.renewed, d)
	}
}

// due returns the messages whose lease was given longer ago than age.
func (h *holdings) due(age time.Duration) []*Delivery {
	h.mu.Lock()
	defer h.mu.Unlock()
	var due []*Delivery
	for d, at := range h.renewed {
		if time.Since(at) >= age {
			due = append(due, d)
		}
	}
	return due
}

// touch notes that the leases were renewed, of those that are still held.
func (h *holdings) touch(deliveries []*Delivery) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	for _, d := range deliveries {
		if _, held := h.renewed[d]; held {
			h.renewed[d] = now
		}
	}
}
