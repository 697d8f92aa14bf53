package forwarder

import (
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
)

// State is that of the breaker.
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
	min, max time.Duration
	onState  func(State)
	logger   watermill.LoggerAdapter

	mu      sync.Mutex
	state   State
	since   time.Time
	pause   time.Duration
	changed chan struct{} // closed when the state changes to Closed
	through int64         // messages that got through
}

func newBreaker(config Config, logger watermill.LoggerAdapter) *breaker {
	return &breaker{min: config.RetryMin, max: config.RetryMax, onState: config.OnState, logger: logger, changed: make(chan struct{})}
}

func (b *breaker) current() State {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state
}

// wait opens the breaker and waits for the next try, which comes at once when another worker gets through. It answers
// false if stop is closed first.
func (b *breaker) wait(cause error, stop <-chan struct{}) bool {
	select {
	case <-stop: // and what failed may have failed because of that
		return false
	default:
	}
	pause, changed := b.failed(cause)
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-changed:
		return true
	case <-stop:
		return false
	}
}

func (b *breaker) failed(cause error) (pause time.Duration, changed <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state == Closed {
		b.state, b.since, b.pause = Open, time.Now(), b.min
		b.logger.Error("The broker is away; nothing is forwarded until it is back", cause, nil)
		b.onState(Open)
	} else {
		b.pause = min(2*b.pause, b.max)
		b.logger.Debug("The broker is still away", watermill.LogFields{"err": cause, "next_try_in": b.pause.String()})
	}
	return b.pause, b.changed
}

// successes is how many messages have got through so far.
func (b *breaker) successes() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.through
}

// succeeded counts a message and closes the breaker.
func (b *breaker) succeeded() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.through++
	b.close()
}

// reached closes the breaker: the broker is there, though it has taken nothing.
func (b *breaker) reached() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.close()
}

func (b *breaker) close() {
	if b.state == Closed {
		return
	}
	b.state = Closed
	b.logger.Info("The broker is back", watermill.LogFields{"away_for": time.Since(b.since).String()})
	close(b.changed)
	b.changed = make(chan struct{})
	b.onState(Closed)
}
