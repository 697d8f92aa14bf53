package stores

import (
	"time"

	"github.com/incursa/watermill-outbox/internal/flow"
)

// State is the state of a store's circuit breaker.
type State int

// The states.
const (
	Closed State = iota // the store answers
	Open                // it does not answer; it is tried again from time to time
)

func (s State) String() string {
	if s == Open {
		return "open"
	}
	return "closed"
}

// A breaker decides when a failing store is tried again: after pauses that double. The scheduler's lock guards it.
type breaker struct {
	pauses flow.Pauses

	state State
	since time.Time // of the state
	until time.Time // of the next try, while it is open
	cause error     // the last error of the store, kept after it is back
}

// failed reports whether the breaker was closed before.
func (b *breaker) failed(cause error) (opened bool) {
	now := time.Now()
	b.cause = cause
	if opened = b.state == Closed; opened {
		b.state, b.since = Open, now
		b.pauses.Reset()
	}
	b.until = now.Add(b.pauses.Next())
	return opened
}

// succeeded returns how long the breaker was open, or 0.
func (b *breaker) succeeded() (away time.Duration) {
	if b.state == Closed {
		return 0
	}
	now := time.Now()
	away = max(now.Sub(b.since), 1)
	b.state, b.since = Closed, now
	return away
}
