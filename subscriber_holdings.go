package outbox

import (
	"sync"
	"time"
)

// holdings are the messages whose leases a Subscriber has, from the claim until the settlement is in the database.
type holdings struct {
	mu      sync.Mutex
	leases  map[*Delivery]*heldLease
	claims  map[OwnerToken]int // how many messages of each claim are not settled yet
	settled []OwnerToken       // of claims whose messages are all settled
}

// A heldLease is what the process knows about a lease; the database decides. Its times are read off the process's monotonic
// clock before the call is sent: the lease cannot expire until its duration has passed since then.
type heldLease struct {
	given time.Time // when the call that gave or renewed it was sent
	asked time.Time // when a renewal was last answered: the lease was given, or the row was locked
	ended bool      // it was not renewed in time, and the handler's context has ended
}

func newHoldings() *holdings {
	return &holdings{leases: map[*Delivery]*heldLease{}, claims: map[OwnerToken]int{}}
}

// add adds the messages of a claim, which was sent at the given time.
func (h *holdings) add(deliveries []*Delivery, sent time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range deliveries {
		h.leases[d] = &heldLease{given: sent, asked: sent}
		h.claims[d.claimed.Receipt.Owner]++
	}
}

// remove drops messages that are not settled: their leases must expire.
func (h *holdings) remove(deliveries ...*Delivery) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range deliveries {
		delete(h.leases, d)
		delete(h.claims, d.claimed.Receipt.Owner)
	}
}

// finish drops messages whose settlements are in the database.
func (h *holdings) finish(deliveries ...*Delivery) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range deliveries {
		delete(h.leases, d)
		owner := d.claimed.Receipt.Owner
		switch h.claims[owner] {
		case 0: // one of them was removed
		case 1:
			delete(h.claims, owner)
			h.settled = append(h.settled, owner)
		default:
			h.claims[owner]--
		}
	}
}

// claimsOver returns the claims whose messages have all been settled since the last call: their leases may end.
func (h *holdings) claimsOver() []OwnerToken {
	h.mu.Lock()
	defer h.mu.Unlock()
	settled := h.settled
	h.settled = nil
	return settled
}

// older returns the messages whose leases are older than age.
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

// renewed records the result of a renewal, which was sent at the given time. Locked rows were skipped.
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

// end returns the messages whose leases are over, each once.
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

// oldest returns the age of the oldest lease that has not ended, or 0 if there is none.
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

// inTouch reports whether the database has answered for all messages within the given time.
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

// over reports whether the lease of a message is over.
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
