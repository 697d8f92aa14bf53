package outbox

import "time"

// A claim begins where the last one of its topic ended, and once in a while at the beginning of the topic, to find what a
// long transaction published some time ago.
const (
	fullClaimInterval = time.Second // between claims that begin at the beginning
	claimOverlap      = time.Second // by which the others begin before the end of the last

	// relearnInterval is how often a claim may move a topic's beginning back: a message that was released became due again
	// later than its row tells, but if the database's clock is set back, all are earlier.
	relearnInterval = 10 * time.Second
)

// claimFrom is where the claims of each topic begin. It belongs to the loop that claims.
type claimFrom struct {
	ends map[string]time.Time // when the last message that was claimed became due
	full time.Time            // when a claim last began at the beginning

	relearned time.Time // when such a claim could last move ends back
	relearn   bool      // the present one can
}

// next says where the next claim begins; nil is at the beginning.
func (c *claimFrom) next(now time.Time) map[string]time.Time {
	if now.Sub(c.full) >= fullClaimInterval {
		c.full = now
		if c.relearn = now.Sub(c.relearned) >= relearnInterval; c.relearn {
			c.relearned = now
		}
		return nil
	}
	return c.ends
}

// claimed records the messages of a claim that began at from. Left out are retried messages, of which the claim does not return
// when they became due, and those of streams, which come in an order of their own.
func (c *claimFrom) claimed(from map[string]time.Time, messages []Claimed) {
	ends := map[string]time.Time{}
	for i := range messages {
		m := &messages[i]
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
	if c.ends == nil {
		c.ends = map[string]time.Time{}
	}
	for topic, end := range ends {
		if from == nil && c.relearn || end.After(c.ends[topic]) {
			c.ends[topic] = end
		}
	}
}
