package forwarder

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// A HungError is returned by Close if a publisher does not return from Publish although the contexts of its messages have
// ended. The messages are back in the outbox and will be published again; the broker may already have them.
type HungError struct {
	Publisher    string        // its type
	Destinations []string      // it was publishing to
	Messages     int           // it was publishing
	Since        time.Duration // how long its oldest call has been running
}

func (e *HungError) Error() string {
	return fmt.Sprintf("forwarder: the publisher %s has not returned from Publish to %q for %v and was left behind; its %d messages are back in the outbox",
		e.Publisher, e.Destinations, e.Since.Round(time.Millisecond), e.Messages)
}

// calls are the running calls of Publish, so that one that hangs can be named.
type calls struct {
	mu   sync.Mutex
	open map[*callToPublish]struct{}
}

type callToPublish struct {
	destination string
	messages    int
	begun       time.Time
}

func newCalls() *calls { return &calls{open: map[*callToPublish]struct{}{}} }

// begin records a call until the function it returns is called.
func (c *calls) begin(destination string, messages int) (end func()) {
	call := &callToPublish{destination, messages, time.Now()}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[call] = struct{}{}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.open, call)
	}
}

// hung describes the calls that hold up Close, if there are any.
func (c *calls) hung(publisher message.Publisher) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.open) == 0 {
		return nil
	}
	e := &HungError{Publisher: fmt.Sprintf("%T", publisher)}
	for call := range c.open {
		e.Messages += call.messages
		e.Since = max(e.Since, time.Since(call.begun))
		if !slices.Contains(e.Destinations, call.destination) {
			e.Destinations = append(e.Destinations, call.destination)
		}
	}
	slices.Sort(e.Destinations)
	return e
}
