package outbox

import "time"

// A Backoff returns how long a message waits before its next attempt. retry is the number of attempts spent before the
// one that failed: 0 after the first failure. It must be safe for concurrent use.
type Backoff func(retry int) time.Duration

// The default backoff is min(2^retry s, 60 s): 1, 2, 4 … seconds.
const (
	defaultBackoffBase = time.Second
	defaultBackoffMax  = time.Minute

	maxExpiryWait = 24 * time.Hour
)

// ExponentialBackoff doubles from base up to limit: min(base * 2^retry, limit). With a negative one there is no pause.
func ExponentialBackoff(base, limit time.Duration) Backoff {
	return func(retry int) time.Duration {
		delay := max(min(base, limit), 0)
		for ; retry > 0 && delay < limit; retry-- {
			delay += min(delay, limit-delay) // doubling could overflow
		}
		return delay
	}
}

// defaultBackoff is ExponentialBackoff(1 s, 60 s).
func defaultBackoff(retry int) time.Duration {
	return ExponentialBackoff(defaultBackoffBase, defaultBackoffMax)(retry)
}

// expiryBackoff is a Subscriber's Config.ExpiryBackoff: its own backoff or, if that is shorter, the default one, which is
// limited to the lease: a message has already waited that long when its lease expires.
func expiryBackoff(backoff Backoff, lease time.Duration) Backoff {
	return func(retry int) time.Duration {
		return max(backoff(retry), min(defaultBackoff(retry), lease))
	}
}

// expiryWaits is a backoff as the operations take it: in milliseconds, indexed by the attempts already spent. The last one
// applies to any higher number.
func expiryWaits(backoff Backoff) []int64 {
	waits := make([]int64, 31)
	for retry := range waits {
		waits[retry] = min(max(backoff(retry), 0), maxExpiryWait).Milliseconds()
	}
	n := len(waits)
	for n > 1 && waits[n-1] == waits[n-2] {
		n--
	}
	return waits[:n]
}
