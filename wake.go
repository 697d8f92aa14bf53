package outbox

import (
	"slices"
	"sync"
)

// A wake-up is a hint that a topic may have due messages. It may be lost, and it may be wrong: polling finds everything.
//
// wakeups are the listeners of this process: its Subscribers, and what carries hints to other processes. The list is replaced, never
// changed, and listeners are called without the lock, so that one may stop itself.
var wakeups struct {
	mu        sync.Mutex
	listeners []*wakeListener
}

type wakeListener struct {
	store string                // it listens to; empty for all
	now   func(topics []string) // committed: claim at once
	soon  func(topics []string) // published in a transaction that is not committed yet; may be nil
}

// Wake tells the Subscribers of this process that messages of these topics were committed, so that they claim at once.
// No topics means all. A Publisher on a *sql.DB and InTx do it themselves; call it after you commit your own transaction.
// It never blocks, and is safe for concurrent use.
func Wake(topics ...string) { wakeStore("", topics...) }

// wakeStore does the same for one of several outboxes: it wakes the Subscribers that are configured with this Store or with
// none. An empty store means all.
func wakeStore(store string, topics ...string) {
	eachListener(store, func(l *wakeListener) { l.now(topics) })
}

// OnWake calls f with the topics of each wake-up of this process until stop is called; no topics means all. Use it to carry
// wake-ups to other processes, as wake/pgx does. f gets the wake-ups of the outboxes with this Store or with none; an empty
// store means all. f must not block, and must be safe for concurrent use.
func OnWake(store string, f func(topics []string)) (stop func()) {
	return listen(&wakeListener{store: store, now: f})
}

func expectSoon(store string, topics []string) {
	eachListener(store, func(l *wakeListener) {
		if l.soon != nil {
			l.soon(topics)
		}
	})
}

// eachListener calls f with the listeners to wake-ups of a store.
func eachListener(store string, f func(*wakeListener)) {
	wakeups.mu.Lock()
	listeners := wakeups.listeners
	wakeups.mu.Unlock()
	for _, l := range listeners {
		if store == "" || l.store == "" || l.store == store {
			f(l)
		}
	}
}

func listen(l *wakeListener) (stop func()) {
	wakeups.mu.Lock()
	defer wakeups.mu.Unlock()
	wakeups.listeners = append(slices.Clip(wakeups.listeners), l)
	return func() {
		wakeups.mu.Lock()
		defer wakeups.mu.Unlock()
		wakeups.listeners = slices.DeleteFunc(slices.Clone(wakeups.listeners), func(other *wakeListener) bool { return other == l })
	}
}
