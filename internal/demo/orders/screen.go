package main

import (
	"io"

	"github.com/incursa/watermill-outbox/internal/demo/stage"
)

// A screen also tells the news of workers.
type screen struct {
	*stage.Screen
	delivered int
}

func newScreen(out io.Writer) *screen { return &screen{Screen: stage.NewScreen(out)} }

// tell tells the news that are worth it. A message that is simply delivered is not.
func (s *screen) tell(n news) {
	if n.Event == delivered {
		s.delivered++
	}
	switch {
	case n.Event == failed:
		s.Say("%s fails at attempt %d: %s; it comes again", n.Name, n.Attempt, n.Reason)
	case n.Event == delivered && n.Flaky:
		s.Say("%s is delivered at attempt %d", n.Name, n.Attempt)
	case n.Event == refused:
		s.Say("%s fails for good at attempt %d: %s", n.Name, n.Attempt, n.Reason)
	case n.Event == tookOver:
		s.Say("the leases of %d messages have ended: they are delivered again", n.Count)
	default:
		s.Progress("%d messages delivered so far", s.delivered)
	}
}
