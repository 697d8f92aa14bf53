package outbox

import (
	"slices"
	"sync"

	"github.com/incursa/watermill-outbox/internal/flow"
)

// wakeOn passes wake-ups for subscribed topics on to a loop: from a store in this process, and from a channel.
func wakeOn(pacer *flow.Pacer, store string, wakeups <-chan string, subscribed func(string) bool) (stop func()) {
	concerned := func(f func()) func([]string) {
		return func(topics []string) {
			if len(topics) == 0 || slices.ContainsFunc(topics, subscribed) {
				f()
			}
		}
	}
	stopListening := listen(&wakeListener{store: store, now: concerned(pacer.Wake), soon: concerned(pacer.Soon)})
	stopped, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case topic, open := <-wakeups:
				if !open {
					wakeups = nil // nil blocks: polling goes on
				} else if topic == "" || subscribed(topic) {
					pacer.Wake()
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

// A wakeRelay passes the wake-ups of one channel on to all its listeners: if they read the channel themselves, each wake-up
// would reach only one of them.
type wakeRelay struct {
	mu        sync.Mutex
	next      int
	listeners map[int]func(topic string)
}

// add has f called with each wake-up until stop is called. f must not block.
func (w *wakeRelay) add(f func(topic string)) (stop func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.listeners == nil {
		w.listeners = map[int]func(string){}
	}
	w.next++
	id := w.next
	w.listeners[id] = f
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.listeners, id)
	}
}

// run passes wake-ups on until stop is closed.
func (w *wakeRelay) run(wakeups <-chan string, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case topic, open := <-wakeups:
			if !open {
				wakeups = nil // nil blocks: polling goes on
				continue
			}
			w.mu.Lock()
			for _, f := range w.listeners {
				f(topic)
			}
			w.mu.Unlock()
		}
	}
}
