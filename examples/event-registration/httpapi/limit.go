package httpapi

import (
	"context"
	"sync"
	"time"
)

// A Limiter says whether a user may ask now, and if not, after how long.
type Limiter interface {
	Allow(ctx context.Context, user string) (ok bool, after time.Duration)
}

// Buckets is a Limiter in memory: each user has a bucket of Burst tokens, and gets Rate new ones a second.
type Buckets struct {
	rate, burst float64
	now         func() time.Time

	mu      sync.Mutex
	buckets map[string]bucket
	swept   time.Time
}

type bucket struct {
	tokens float64
	at     time.Time
}

// NewBuckets returns a Limiter for this process.
func NewBuckets(rate, burst float64) *Buckets {
	return &Buckets{rate: rate, burst: burst, now: time.Now, buckets: map[string]bucket{}}
}

// Allow takes a token from the user's bucket.
func (b *Buckets) Allow(_ context.Context, user string) (bool, time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	b.sweep(now)
	own, known := b.buckets[user]
	if !known {
		own = bucket{tokens: b.burst, at: now}
	}
	own.tokens = min(b.burst, own.tokens+now.Sub(own.at).Seconds()*b.rate)
	own.at = now
	ok := own.tokens >= 1
	if ok {
		own.tokens--
	}
	b.buckets[user] = own
	return ok, time.Duration((1 - own.tokens) / b.rate * float64(time.Second))
}

// sweep forgets buckets that are full again.
func (b *Buckets) sweep(now time.Time) {
	full := time.Duration(b.burst / b.rate * float64(time.Second))
	if now.Sub(b.swept) < full {
		return
	}
	b.swept = now
	for user, own := range b.buckets {
		if now.Sub(own.at) >= full {
			delete(b.buckets, user)
		}
	}
}
