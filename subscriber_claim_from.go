package outbox

import (
	"maps"
	"math"
	"sync"
	"time"
)

// A claim begins where the last one of its topic ended, and now and then at the beginning of the topic, to find messages of
// long transactions.
const (
	fullClaimInterval = time.Second // between claims that begin at the beginning
	claimOverlap      = time.Second // how long before the end of the last claim the others begin

	// relearnInterval is how often a claim may move a topic's beginning back, which is needed only if the database's clock
	// was set back: a released message also looks earlier, because its row does not say when it became due again.
	relearnInterval = 10 * time.Second
)

// claimFrom is where the claims of each topic begin. Only Subscriber.claim calls next, patience and claimed.
type claimFrom struct {
	mu   sync.Mutex
	ends map[string]time.Time // by topic: when the last claimed message became due; never changed, but replaced

	full time.Time // when a claim last began at the beginning

	relearned time.Time // when such a claim could last move ends back
	relearn   bool      // the present one can
}

// next returns where the next claim begins; nil is the beginning.
func (c *claimFrom) next(now time.Time) map[string]time.Time {
	if now.Sub(c.full) >= fullClaimInterval {
		c.full = now
		if c.relearn = now.Sub(c.relearned) >= relearnInterval; c.relearn {
			c.relearned = now
		}
		return nil
	}
	return c.last()
}

// patience is how long to wait after a claim that began at from and found nothing: until a claim from the beginning is due, which finds
// what a long transaction has committed since.
func (c *claimFrom) patience(from map[string]time.Time, now time.Time) time.Duration {
	if len(from) == 0 {
		return math.MaxInt64
	}
	return max(0, fullClaimInterval-now.Sub(c.full))
}

// last returns where the claims between those from the beginning begin. It is safe for concurrent use.
func (c *claimFrom) last() map[string]time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ends
}

// claimed records the messages of a claim that began at from. It skips retried messages, because the claim does not return
// when they became due, and messages of streams, which have their own order.
func (c *claimFrom) claimed(from map[string]time.Time, messages []*Claimed) {
	ends := map[string]time.Time{}
	for _, m := range messages {
		if m.RetryCount > 0 || m.StreamKey != "" {
			continue
		}
		due := m.DueAt
		if due.IsZero() {
			due = m.CreatedAt
		}
		if end := due.Add(-claimOverlap); end.After(ends[m.Topic]) {
			ends[m.Topic] = end
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.ends
	c.ends = maps.Clone(known)
	if known == nil {
		c.ends = map[string]time.Time{}
	}
	for topic, end := range ends {
		if from == nil && c.relearn || end.After(known[topic]) {
			c.ends[topic] = end
		}
	}
}
