package outbox

import (
	"slices"
	"sync/atomic"
	"time"
)

// soonWindow is how long claims are frequent after a message was published in a transaction that its caller commits.
const soonWindow = 100 * time.Millisecond

// A pacer times the claims: there is no pause while there is work; otherwise pauses double, and a wake-up ends them.
type pacer struct {
	shortest, longest time.Duration

	next  time.Duration // only used by the claim loop
	woken chan struct{}
	often atomic.Int64 // until when to poll often, in nanoseconds since 1970
}

func newPacer(shortest, longest time.Duration) *pacer {
	return &pacer{shortest: shortest, longest: longest, next: shortest, woken: make(chan struct{}, 1)}
}

// wake ends the current pause, or the next one.
func (p *pacer) wake() { notify(p.woken) }

// listen passes on wake-ups for subscribed topics: those of a store in this process, and those of a channel.
func (p *pacer) listen(store string, wakeups <-chan string, subscribed func(string) bool) (stop func()) {
	concerns := func(topics []string) bool { return len(topics) == 0 || slices.ContainsFunc(topics, subscribed) }
	stopListening := listen(&wakeListener{
		store: store,
		now: func(topics []string) {
			if concerns(topics) {
				p.wake()
			}
		},
		soon: func(topics []string) {
			if concerns(topics) {
				p.often.Store(time.Now().Add(soonWindow).UnixNano())
				p.wake()
			}
		},
	})
	stopped, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case topic, open := <-wakeups:
				if !open {
					wakeups = nil // nil blocks: polling goes on
				} else if topic == "" || subscribed(topic) {
					p.wake()
				}
			case <-stopped:
				return
			}
		}
	}()
	return func() {
		stopListening()
		close(stopped)
		<-done
	}
}

// busy resets the next pause to the shortest.
func (p *pacer) busy() { p.next = p.shortest }

// idle pauses after a claim that found nothing. If the claim left out a full topic, freed also ends the pause; otherwise it
// is nil.
func (p *pacer) idle(freed, stop <-chan struct{}) {
	if time.Now().UnixNano() < p.often.Load() {
		p.next = p.shortest
	}
	if p.pause(p.next, freed, stop) {
		p.next = min(2*p.next, p.longest)
	} else {
		p.next = p.shortest
	}
}

// pause waits for d, and reports whether nothing else ended it: a wake-up, a freed place or stop.
func (p *pacer) pause(d time.Duration, freed, stop <-chan struct{}) bool {
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

// full waits for a freed place, a wake-up or stop.
func (p *pacer) full(freed, stop <-chan struct{}) {
	select {
	case <-freed:
	case <-p.woken:
	case <-stop:
	}
}
