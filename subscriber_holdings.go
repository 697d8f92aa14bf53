package outbox

import (
	"sync"
	"time"
)

// holdings are the messages whose lease a Subscriber has, from the claim until the settlement is in the database.
type holdings struct {
	mu      sync.Mutex
	leases  map[*Delivery]*heldLease
	claims  map[OwnerToken]int // how many of each claim are not settled yet
	settled []OwnerToken       // of claims that are settled to the last message
}

// A heldLease is what the process knows of a lease; the database decides. Its times are read off the process's monotonic
// clock before the call was sent: the lease cannot be over before its duration has passed since.
type heldLease struct {
	given time.Time // by the call that gave or renewed it
	asked time.Time // when a renewal was last answered: the lease was given, or the row was locked
	ended bool      // nobody renewed it in time, and the handler knows
}

func newHoldings() *holdings {
	return &holdings{leases: map[*Delivery]*heldLease{}, claims: map[OwnerToken]int{}}
}

// add takes in what a claim has brought that was sent at a time.
func (h *holdings) add(deliveries []*Delivery, sent time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range deliveries {
		h.leases[d] = &heldLease{given: sent, asked: sent}
		h.claims[d.claimed.Receipt.Owner]++
	}
}

// remove lets go of messages that are not settled: their lease has to run out.
func (h *holdings) remove(deliveries ...*Delivery) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range deliveries {
		delete(h.leases, d)
		delete(h.claims, d.claimed.Receipt.Owner)
	}
}

// finish lets go of messages that are settled, in the database too.
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

// claimsOver are the claims that were settled to the last message since it was asked before: their leases may end.
func (h *holdings) claimsOver() []OwnerToken {
	h.mu.Lock()
	defer h.mu.Unlock()
	settled := h.settled
	h.settled = nil
	return settled
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
