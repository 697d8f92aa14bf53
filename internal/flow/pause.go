package flow

import (
	"context"
	"time"
)

// Pause waits, unless ctx ends first.
func Pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Pauses double from the shortest to the longest.
type Pauses struct {
	Shortest, Longest time.Duration

	last time.Duration
}

// Outage returns the pauses after failed calls to a database.
func Outage() Pauses { return Pauses{Shortest: 50 * time.Millisecond, Longest: 5 * time.Second} }

// Next returns how long the next one is.
func (p *Pauses) Next() time.Duration {
	p.last = min(max(2*p.last, p.Shortest), p.Longest)
	return p.last
}

// Reset makes the next one the shortest.
func (p *Pauses) Reset() { p.last = 0 }
