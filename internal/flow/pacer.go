package flow

import (
	"math"
	"sync/atomic"
	"time"
)

// soonWindow is how long polling is frequent after Soon.
const soonWindow = 100 * time.Millisecond

// A Pacer times a loop that looks for work: there is no pause while there is work; otherwise pauses double, and a wake-up ends
// them. Wake and Soon may be called by any goroutine, the others only by the loop.
type Pacer struct {
	pauses Pauses
	woken  chan struct{}
	often  atomic.Int64 // until when to poll often, in nanoseconds since 1970
}

// NewPacer returns a Pacer whose pauses are between these.
func NewPacer(shortest, longest time.Duration) *Pacer {
	return &Pacer{pauses: Pauses{Shortest: shortest, Longest: longest}, woken: NewNote()}
}

// Wake ends the current pause, or the next one.
func (p *Pacer) Wake() { Notify(p.woken) }

// Soon is Wake for work that is about to come, at a moment that cannot be seen: pauses are short for a while.
func (p *Pacer) Soon() {
	p.often.Store(time.Now().Add(soonWindow).UnixNano())
	p.Wake()
}

// Busy makes the next pause the shortest.
func (p *Pacer) Busy() { p.pauses.Reset() }

// Idle pauses because nothing was found. If a look left something out for want of room, freed also ends the pause; otherwise
// it is nil.
func (p *Pacer) Idle(freed, stop <-chan struct{}) { p.IdleAtMost(math.MaxInt64, freed, stop) }

// IdleAtMost is Idle for a look that may have missed something, so that the next one comes after most.
func (p *Pacer) IdleAtMost(most time.Duration, freed, stop <-chan struct{}) {
	if time.Now().UnixNano() < p.often.Load() {
		p.pauses.Reset()
	}
	if !p.Pause(min(p.pauses.Next(), most), freed, stop) {
		p.pauses.Reset()
	}
}

// Pause waits for d, and reports whether nothing else ended it: a wake-up, freed room or stop.
func (p *Pacer) Pause(d time.Duration, freed, stop <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-p.woken:
	case <-freed:
	case <-stop:
	}
	return false
}

// Full waits for freed room, a wake-up or stop.
func (p *Pacer) Full(freed, stop <-chan struct{}) {
	select {
	case <-freed:
	case <-p.woken:
	case <-stop:
	}
}
