package forwarder

import "time"

// A Status is how a Forwarder fares, and what it has done since it was made. Times are by this process's clock.
type Status struct {
	State State
	Since time.Time // when the breaker opened or closed last, or the Forwarder was made

	Forwarded     int       // messages that the broker has accepted
	LastForwarded time.Time // zero if there is none

	// Waiting is how many messages the Forwarder holds because they could not be published, or would overtake one that could not.
	Waiting int

	LastError   error // why a message could not be published, or was refused; nil if there was no such error
	LastErrorAt time.Time
}

// Status returns how the Forwarder fares. It is safe to call from many goroutines, and asks neither database nor broker.
func (f *Forwarder) Status() Status {
	f.mu.Lock()
	held := f.held
	f.mu.Unlock()
	s := f.breaker.status()
	for _, w := range held {
		s.Waiting += w.count()
	}
	return s
}
