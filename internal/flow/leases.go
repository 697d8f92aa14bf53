package flow

import (
	"sync"
	"time"

	"github.com/incursa/watermill-outbox/internal/base"
)

// Leases tracks the leases of the messages that a process holds, from the claim until the settlement is in the database. It is
// safe for concurrent use.
type Leases[Message comparable] struct {
	owner func(Message) base.OwnerToken

	mu      sync.Mutex
	leases  map[Message]*lease
	claims  map[base.OwnerToken]int // how many messages of each claim are not settled yet
	settled []base.OwnerToken       // of claims whose messages are all settled
}

// A lease is what the process knows about a lease; the database decides. Its times are read off the process's monotonic
// clock before the call is sent: the lease cannot expire until its duration has passed since then.
type lease struct {
	given time.Time // when the call that gave or renewed it was sent
	asked time.Time // when a renewal was last answered: the lease was given, or the row was locked
	ended bool      // it was not renewed in time, and the handler's context has ended
}

// NewLeases returns an empty Leases; owner returns the claim of a message.
func NewLeases[Message comparable](owner func(Message) base.OwnerToken) *Leases[Message] {
	return &Leases[Message]{owner: owner, leases: map[Message]*lease{}, claims: map[base.OwnerToken]int{}}
}

// Add adds the messages of a claim, which was sent at the given time.
func (ls *Leases[Message]) Add(messages []Message, sent time.Time) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, m := range messages {
		ls.leases[m] = &lease{given: sent, asked: sent}
		ls.claims[ls.owner(m)]++
	}
}

// Remove drops messages that are not settled: their leases must expire.
func (ls *Leases[Message]) Remove(messages ...Message) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, m := range messages {
		delete(ls.leases, m)
		delete(ls.claims, ls.owner(m))
	}
}

// Finish drops messages whose settlements are in the database.
func (ls *Leases[Message]) Finish(messages ...Message) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, m := range messages {
		delete(ls.leases, m)
		owner := ls.owner(m)
		switch ls.claims[owner] {
		case 0: // one of them was removed
		case 1:
			delete(ls.claims, owner)
			ls.settled = append(ls.settled, owner)
		default:
			ls.claims[owner]--
		}
	}
}

// ClaimsOver returns the claims whose messages have all been settled since the last call: their leases may end.
func (ls *Leases[Message]) ClaimsOver() []base.OwnerToken {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	settled := ls.settled
	ls.settled = nil
	return settled
}

// Older returns the messages whose leases are older than age.
func (ls *Leases[Message]) Older(age time.Duration) []Message {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	var older []Message
	for m, l := range ls.leases {
		if time.Since(l.given) >= age {
			older = append(older, m)
		}
	}
	return older
}

// Renewed records the result of a renewal, which was sent at the given time. Locked rows were skipped.
func (ls *Leases[Message]) Renewed(messages []Message, locked map[Message]bool, sent time.Time) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, m := range messages {
		l := ls.leases[m]
		if l == nil {
			continue // settled meanwhile
		}
		l.asked = sent
		if !locked[m] {
			l.given = sent
		}
	}
}

// End returns the messages whose leases are over, each once.
func (ls *Leases[Message]) End(lease time.Duration) []Message {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	var over []Message
	for m, l := range ls.leases {
		if !l.ended && time.Since(l.given) >= lease {
			l.ended = true
			over = append(over, m)
		}
	}
	return over
}

// Oldest returns the age of the oldest lease that has not ended, or 0 if there is none.
func (ls *Leases[Message]) Oldest() (age time.Duration) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.leases {
		if !l.ended {
			age = max(age, time.Since(l.given))
		}
	}
	return age
}

// InTouch reports whether the database has answered for all messages within the given time.
func (ls *Leases[Message]) InTouch(within time.Duration) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.leases {
		if time.Since(l.asked) >= within {
			return false
		}
	}
	return true
}

// Over reports whether the lease of a message is over.
func (ls *Leases[Message]) Over(m Message, lease time.Duration) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.leases[m]
	return l == nil || time.Since(l.given) >= lease
}

// Has reports whether a message is held.
func (ls *Leases[Message]) Has(m Message) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.leases[m] != nil
}

// None reports whether nothing is held.
func (ls *Leases[Message]) None() bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return len(ls.leases) == 0
}
