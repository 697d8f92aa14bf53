package outbox

import (
	"sync"
	"time"
)

// holdings are the messages whose lease a Subscriber has, from the claim until the settlement is in the database.
type holdings struct {
	mu     sync.Mutex
	leases map[*Delivery]*heldLease
}

// A heldLease is what the process knows of a lease; the database decides. Its times are read off the process's monotonic
// clock before the call was sent: the lease cannot be over before its duration has passed since.
type heldLease struct {
	given time.Time // by the call that gave or renewed it
	asked time.Time // when a renewal was last answered: the lease was given, or the row was locked
	ended bool      // nobody renewed it in time, and the handler knows
}

func newHoldings() *holdings { return &holdings{leases: map[*Delivery]*heldLease{}} }

// add takes in what a claim has brought that was sent at a time.
func (h *holdings) add(deliveries []*Delivery, sent time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range deliveries {
		h.leases[d] = &heldLease{given: sent, asked: sent}
	}
}

func (h *holdings) remove(deliveries ...*Delivery) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range deliveries {
		delete(h.leases, d)
	}
}

// older returns the messages whose lease was given longer ago than age.
func (h *holdings) older(age time.Duration) []*Delivery {
	h.mu.Lock()
	defer h.mu.Unlock()
	var older []*Delivery
	for d, l := range h.leases {
		if time.Since(l.given) >= age {
			older = append(older, d)
		}
	}
	return older
}

// renewed notes what a renewal that was sent at a time has answered. Locked rows were passed over.
func (h *holdings) renewed(deliveries []*Delivery, locked map[*Delivery]bool, sent time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range deliveries {
		l := h.leases[d]
		if l == nil {
			continue // settled meanwhile
		}
		l.asked = sent
		if !locked[d] {
			l.given = sent
		}
	}
}

// end returns the messages whose lease is over, each once.
func (h *holdings) end(lease time.Duration) []*Delivery {
	h.mu.Lock()
	defer h.mu.Unlock()
	var over []*Delivery
	for d, l := range h.leases {
		if !l.ended && time.Since(l.given) >= lease {
			l.ended = true
			over = append(over, d)
		}
	}
	return over
}

// oldest is the age of the lease that was given first, of those that have not ended. It is 0 if there is none.
func (h *holdings) oldest() (age time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range h.leases {
		if !l.ended {
			age = max(age, time.Since(l.given))
		}
	}
	return age
}

// inTouch reports whether the database has answered for all of them within a time.
func (h *holdings) inTouch(within time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range h.leases {
		if time.Since(l.asked) >= within {
			return false
		}
	}
	return true
}

// over reports whether the lease of a message is.
func (h *holdings) over(d *Delivery, lease time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.leases[d]
	return l == nil || time.Since(l.given) >= lease
}

func (h *holdings) none() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.leases) == 0
}
