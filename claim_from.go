package outbox

import "time"

// A claim begins where the last one of its topic ended, and now and then at the beginning of the topic: a transaction may
// commit what it published long ago.
const (
	fullClaimInterval = time.Second // between claims that begin at the beginning
	claimOverlap      = time.Second // by which the others begin before the end of the last
)

// claimFrom is where the claims of each topic begin. It belongs to the loop that claims.
type claimFrom struct {
	ends map[string]time.Time // when the last message that was claimed became due
	full time.Time            // when a claim last began at the beginning
}

// next says where the next claim begins; nil is at the beginning.
func (c *claimFrom) next(now time.Time) map[string]time.Time {
	if now.Sub(c.full) >= fullClaimInterval {
		c.full = now
		return nil
	}
	return c.ends
}

// claimed notes what a claim has brought that began at from. A message that was tried before became due at a time that its
// row does not tell. A claim from the beginning starts anew: the database's clock may have been set back.
func (c *claimFrom) claimed(from map[string]time.Time, messages []Claimed) {
	ends := map[string]time.Time{}
	for i := range messages {
		m := &messages[i]
		if m.RetryCount > 0 {
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
		if from == nil || end.After(c.ends[topic]) {
			c.ends[topic] = end
		}
	}
}
