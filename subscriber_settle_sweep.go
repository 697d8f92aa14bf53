package outbox

import "time"

// The settler checks the handed-out messages this often: often while answers come, and more and more rarely while handlers
// are slow.
const (
	sweepFast = time.Millisecond
	sweepSlow = 16 * time.Millisecond
)

// A sweepTimer says when the settler checks the messages again.
type sweepTimer struct {
	next     <-chan time.Time // nil while there is nothing to check
	timer    *time.Timer
	interval time.Duration
}

func newSweepTimer() *sweepTimer {
	return &sweepTimer{timer: time.NewTimer(sweepFast), interval: sweepFast}
}

// set is called after each turn of the settler's loop: was it a sweep, are messages open, and were there answers?
func (t *sweepTimer) set(swept, open, answers bool) {
	if swept {
		t.interval = min(2*t.interval, sweepSlow)
	}
	if answers {
		t.interval = sweepFast
	}
	switch {
	case !open:
		t.next = nil
	case swept || t.next == nil: // otherwise it runs still
		t.timer.Reset(t.interval)
		t.next = t.timer.C
	}
}

func (t *sweepTimer) stop() { t.timer.Stop() }
