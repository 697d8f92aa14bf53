package outbox

import "sync"

// A wake-up is a hint that a topic may have due messages. It may be lost or come for nothing: polling finds everything.
//
// wakeups are the listeners of this process: its Subscribers, and whatever carries hints to other processes.
var wakeups struct {
	mu        sync.RWMutex
	listeners map[*wakeListener]struct{}
}

type wakeListener struct {
	store string                // whose wake-ups it is for, or empty for all
	now   func(topics []string) // committed: claim at once
	soon  func(topics []string) // published in a transaction that is not committed yet; nil if of no use
}

// Wake tells the Subscribers of this process that messages of these topics were committed, so that they claim at once.
// A Publisher on a *sql.DB and InTx do it themselves; call it after committing a transaction of your own.
// It never blocks. No topics means all.
func Wake(topics ...string) { wakeStore("", topics...) }

// wakeStore does the same for one of many outboxes: it wakes the Subscribers whose configuration has this Store, and those
// that have none. An empty store means all.
func wakeStore(store string, topics ...string) {
	eachListener(store, func(l *wakeListener) { l.now(topics) })
}

// OnWake calls f with the topics of each wake-up of this process until stop is called; no topics means all. It carries
// wake-ups to other processes, as wake/pgx does: f must not block. Of many outboxes f hears of the one with this Store, and of
// those that have none; an empty store means all.
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

// eachListener calls f with those whom the wake-ups of a store concern.
func eachListener(store string, f func(*wakeListener)) {
	wakeups.mu.RLock()
	defer wakeups.mu.RUnlock()
	for l := range wakeups.listeners {
		if store == "" || l.store == "" || l.store == store {
			f(l)
		}
	}
}

func listen(l *wakeListener) (stop func()) {
	wakeups.mu.Lock()
	defer wakeups.mu.Unlock()
	if wakeups.listeners == nil {
		wakeups.listeners = map[*wakeListener]struct{}{}
	}
	wakeups.listeners[l] = struct{}{}
	return func() {
		wakeups.mu.Lock()
		defer wakeups.mu.Unlock()
		delete(wakeups.listeners, l)
	}
}
