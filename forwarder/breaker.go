package forwarder

import (
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/incursa/watermill-outbox/internal/quiet"
)

// State is the state of the circuit breaker.
type State int

// The states.
const (
	Closed State = iota // messages are published
	Open                // nothing can be published; the forwarder tries again from time to time
)

func (s State) String() string {
	if s == Open {
		return "open"
	}
	return "closed"
}

// breaker is shared by all workers of a forwarder.
type breaker struct {
	recent   time.Duration // how long after a success a failure is no outage
	onState  func(State)
	logger   watermill.LoggerAdapter
	troubles *quiet.Troubles

	telling sync.Mutex // held around mu while OnState is called, so that it hears of changes in order

	mu      sync.Mutex
	last    time.Time     // when something got through, or the broker answered
	changed chan struct{} // closed when the state changes to Closed
	told    Status        // but for Waiting
}

func newBreaker(config Config, logger watermill.LoggerAdapter) *breaker {
	return &breaker{
		recent: 10 * config.RetryMin, onState: config.OnState, logger: logger, troubles: quiet.New(logger), changed: make(chan struct{}),
		told: Status{Since: time.Now()},
	}
}

func (b *breaker) status() Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.told
}

func (b *breaker) current() State {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.told.State
}

// closes returns a channel that is closed when the breaker closes.
func (b *breaker) closes() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.changed
}

const msgAway = "The broker is away; nothing can be published"

// trouble notes why a message was not published.
func (b *breaker) trouble(cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.told.LastError, b.told.LastErrorAt = cause, time.Now()
}

// failed opens the breaker, unless something got through recently.
func (b *breaker) failed(cause error) {
	b.update(func() {
		if b.isRecent() {
			return
		}
		b.troubles.Error(msgAway, cause, nil)
		b.told.State = Open
	})
}

// update changes the state under the lock and calls OnState outside it, where Forwarder.State may be called.
func (b *breaker) update(change func()) {
	b.telling.Lock()
	defer b.telling.Unlock()
	b.mu.Lock()
	before := b.told.State
	change()
	after := b.told.State
	if after != before {
		b.told.Since = time.Now()
	}
	b.mu.Unlock()
	if after != before {
		b.onState(after)
	}
}

func (b *breaker) isRecent() bool { return !b.last.IsZero() && time.Since(b.last) < b.recent }

// partial reports whether something has got through since the given time, and recently: then only a part of the broker is
// away.
func (b *breaker) partial(since time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.last.After(since) && time.Since(b.last) < time.Minute
}

// successes is the number of messages that have got through so far.
func (b *breaker) successes() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.told.Forwarded
}

// succeeded counts a message and closes the breaker.
func (b *breaker) succeeded() {
	b.update(func() {
		b.close()
		b.told.Forwarded++
		b.told.LastForwarded = b.last
	})
}

// reached closes the breaker: the broker answered, even if it accepted nothing.
func (b *breaker) reached() { b.update(b.close) }

// close is called under the lock.
func (b *breaker) close() {
	b.last = time.Now()
	if b.told.State == Closed {
		return
	}
	b.told.State = Closed
	b.troubles.Over(msgAway)
	close(b.changed)
	b.changed = make(chan struct{})
}
