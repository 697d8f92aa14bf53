package main

import (
	"fmt"
	"io"
	"time"
)

// A screen tells what happens, a line each, with the seconds since the start.
type screen struct {
	out           io.Writer
	started, last time.Time
	delivered     int
}

func newScreen(out io.Writer) *screen {
	now := time.Now()
	return &screen{out: out, started: now, last: now}
}

func (s *screen) say(format string, args ...any) {
	s.last = time.Now()
	fmt.Fprintf(s.out, "%5.1fs  %s\n", s.last.Sub(s.started).Seconds(), fmt.Sprintf(format, args...))
}

// progress says something only if there was nothing else to say for a while.
func (s *screen) progress(format string, args ...any) {
	if time.Since(s.last) >= 3*time.Second {
		s.say(format, args...)
	}
}

// tell tells the news that are worth it. A message that is simply delivered is not.
func (s *screen) tell(n news) {
	if n.Event == delivered {
		s.delivered++
	}
	switch {
	case n.Event == failed:
		s.say("%s fails at attempt %d: %s; it comes again", n.Name, n.Attempt, n.Reason)
	case n.Event == delivered && n.Flaky:
		s.say("%s is delivered at attempt %d", n.Name, n.Attempt)
	case n.Event == refused:
		s.say("%s fails for good at attempt %d: %s", n.Name, n.Attempt, n.Reason)
	case n.Event == tookOver:
		s.say("the leases of %d messages have ended: they are delivered again", n.Count)
	default:
		s.progress("%d messages delivered so far", s.delivered)
	}
}
