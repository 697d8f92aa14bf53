package stage

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// A Screen tells what happens, a line each, with the seconds since the start. Any number of goroutines may.
type Screen struct {
	mu            sync.Mutex
	out           io.Writer
	started, last time.Time
}

// NewScreen starts the clock.
func NewScreen(out io.Writer) *Screen {
	now := time.Now()
	return &Screen{out: out, started: now, last: now}
}

// Say tells something.
func (s *Screen) Say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = time.Now()
	fmt.Fprintf(s.out, "%5.1fs  %s\n", s.last.Sub(s.started).Seconds(), fmt.Sprintf(format, args...))
}

// Progress says something only if there was nothing else to say for a while.
func (s *Screen) Progress(format string, args ...any) {
	s.mu.Lock()
	quiet := time.Since(s.last) >= 3*time.Second
	s.mu.Unlock()
	if quiet {
		s.Say(format, args...)
	}
}

// Print prints a line as it is, without the time.
func (s *Screen) Print(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.out, format+"\n", args...)
}
