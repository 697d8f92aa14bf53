package outbox

import "time"

// A Backoff says how long a message waits before its next attempt. retry counts the attempts already spent on it,
// beginning at 0 for the first failure. It must be safe for concurrent use.
type Backoff func(retry int) time.Duration

// The default backoff is min(2^retry s, 60 s): 1, 2, 4 … seconds (OBX-056).
const (
	defaultBackoffBase = time.Second
	defaultBackoffMax  = time.Minute
)

// ExponentialBackoff doubles from base up to limit: min(base * 2^retry, limit).
func ExponentialBackoff(base, limit time.Duration) Backoff {
	return func(retry int) time.Duration {
		delay := base
		for ; retry > 0 && delay < limit; retry-- {
			delay *= 2
		}
		return min(delay, limit)
	}
}

// DefaultBackoff is ExponentialBackoff(1 s, 60 s).
func DefaultBackoff(retry int) time.Duration {
	return ExponentialBackoff(defaultBackoffBase, defaultBackoffMax)(retry)
}
