package forwarder

import (
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/seam"
)

// How long a message is parked: as long as its destination has been away, between these multiples of RetryMin and of
// RetryMax. Claiming it too early and giving it back costs as much as publishing another message.
const (
	parkMin = 30
	parkMax = 3
)

// park returns a message to the outbox, because its part of the broker has been away since the given time. The rest of its
// stream's claim goes back too, with the delay of the first message. No attempt is spent.
func (w *worker) park(it *item, since time.Time) {
	delay := time.Duration(0)
	if w.waiting.stop(it) {
		least := parkMin * w.config.RetryMin
		delay = inSteps(min(max(time.Since(since), least), max(parkMax*w.config.RetryMax, least)))
	}
	if d, ok := outbox.DeliveryFrom(it.received.Context()); ok {
		seam.Delivery(d).Postpone(delay)
	}
	it.received.Nack()
}

// inSteps rounds up: messages that go back with the same delay are settled together.
func inSteps(delay time.Duration) time.Duration {
	const step = 100 * time.Millisecond
	return (delay + step - 1).Truncate(step)
}
