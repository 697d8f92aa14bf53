package outbox

import (
	"slices"
	"sync"
	"sync/atomic"
)

// A wake-up is a hint that a topic may have due messages. It may be lost, and it may be wrong: polling finds everything.
//
// wakeups are the listeners of this process: its Subscribers, and what carries hints to other processes. Each change replaces the
// list, so that a listener may stop itself, and whoever wakes them waits for nobody.
var wakeups struct {
	mu        sync.Mutex // for changes
	listeners atomic.Pointer[[]*wakeListener]
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
	listeners := wakeups.listeners.Load()
	if listeners == nil {
		return
	}
	for _, l := range *listeners {
		if store == "" || l.store == "" || l.store == store {
			f(l)
		}
	}
}

func listen(l *wakeListener) (stop func()) {
	changeListeners(func(all []*wakeListener) []*wakeListener { return append(all, l) })
	return func() {
		changeListeners(func(all []*wakeListener) []*wakeListener {
			return slices.DeleteFunc(all, func(other *wakeListener) bool { return other == l })
		})
	}
}

// changeListeners replaces the list by what change makes of a copy.
func changeListeners(change func([]*wakeListener) []*wakeListener) {
	wakeups.mu.Lock()
	defer wakeups.mu.Unlock()
	var all []*wakeListener
	if before := wakeups.listeners.Load(); before != nil {
		all = slices.Clone(*before)
	}
	all = change(all)
	wakeups.listeners.Store(&all)
}
