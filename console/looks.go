package console

import (
	"context"
	"errors"
	"sync"
	"time"
)

const (
	patience     = 80 * time.Millisecond // a page waits in all for what it asks
	abandonAfter = 20 * time.Second      // nobody has asked for it any more
	looksKept    = 200
	freshFor     = 2 * time.Second // or ten times as long as it took
)

// looks are questions to databases that may take longer than a page: they go on in the background, and each page that asks
// the same sees how far they have come. Those that nobody asks any more end.
type looks struct {
	mu     sync.Mutex
	closed bool
	byKey  map[string]*look
}

type look struct {
	cancel context.CancelFunc
	done   chan struct{}

	mu    sync.Mutex
	asked time.Time
	value any
	err   error
	begun time.Time
	ended time.Time // zero while it goes on
}

// An answer says how far a look has come.
type answer struct {
	Running bool
	Err     error
	At      time.Time // when it ended
}

var errClosed = errors.New("the console is closed")

// ask returns what is known of a question after a short wait. The key names the question. f may tell what it knows so far.
func ask[T any](v *visit, key string, f func(ctx context.Context, tell func(T)) (T, error)) (value T, a answer) {
	key = v.place.slug + "\x00" + key
	l, err := v.looks.find(v.Console, v.place.turns, key, func(ctx context.Context, l *look) (any, error) {
		return f(ctx, func(so T) { l.tell(so) })
	})
	if err != nil {
		return value, answer{Err: err}
	}
	timer := time.NewTimer(time.Until(v.begun.Add(patience)))
	defer timer.Stop()
	select {
	case <-l.done:
	case <-timer.C:
	case <-v.r.Context().Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	value, _ = l.value.(T) // nothing is told at first
	if errors.Is(l.err, context.Canceled) && v.ctx.Err() == nil {
		return value, answer{Running: true} // something has changed meanwhile, and it is asked anew
	}
	return value, answer{Running: l.ended.IsZero(), Err: l.err, At: l.ended}
}

// find returns the look of a key in a store, and begins it if there is none that is fresh.
func (q *looks) find(c *Console, turns *turns, key string, f func(context.Context, *look) (any, error)) (*look, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil, errClosed
	}
	if q.byKey == nil {
		q.byKey = map[string]*look{}
	}
	now := time.Now()
	if l := q.byKey[key]; l != nil && l.fresh(now) {
		return l, nil
	}
	if len(q.byKey) >= looksKept {
		return nil, errors.New("too many searches go on at once; wait a moment")
	}
	ctx, cancel := context.WithCancel(c.ctx)
	l := &look{cancel: cancel, done: make(chan struct{}), asked: now}
	q.byKey[key] = l
	c.work.Go(func() { l.run(ctx, c, turns, f) })
	return l, nil
}

func (l *look) run(ctx context.Context, c *Console, turns *turns, f func(context.Context, *look) (any, error)) {
	defer close(l.done)
	defer l.cancel()
	turns.take(ctx)
	l.begin()
	value, err := f(context.WithValue(ctx, turnsKey{}, turns), l)
	turns.giveBack()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err, l.ended = err, time.Now()
	if err == nil {
		l.value = value
	}
	c.watchers.tell()
}

func (l *look) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begun = time.Now()
}

func (l *look) tell(value any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.value = value
}

// fresh says whether what is known will do, and notes that it was asked for.
func (l *look) fresh(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked = now
	return l.ended.IsZero() || l.err == nil && now.Sub(l.ended) < max(freshFor, 10*l.ended.Sub(l.begun))
}

func (l *look) stale(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return now.Sub(l.asked) > abandonAfter
}

// sweep ends and forgets what nobody asks for.
func (q *looks) sweep(now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for key, l := range q.byKey {
		if l.stale(now) {
			l.cancel()
			delete(q.byKey, key)
		}
	}
}

func (q *looks) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
}

// forget drops what is known of a store: something has been changed there.
func (q *looks) forget(p *place) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for key, l := range q.byKey {
		if len(key) > len(p.slug) && key[:len(p.slug)+1] == p.slug+"\x00" {
			l.cancel()
			delete(q.byKey, key)
		}
	}
}
