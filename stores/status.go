package stores

import "time"

// A StoreStatus is a Subscriber's view of a store: gauges and counters for metrics.
type StoreStatus struct {
	Store     string
	State     State     // of its breaker
	Since     time.Time // when it entered that state
	LastError error     // of the last failed claim; kept after the store is back
	InFlight  int       // messages that are claimed and not yet answered, or are being claimed
	Claims    int64     // that have ended
	Failures  int64     // of them
	Messages  int64     // that were claimed
}

// Status returns the status of every store that the Subscriber serves, in the order of the provider.
func (s *Subscriber) Status() []StoreStatus {
	s.scheduler.mu.Lock()
	defer s.scheduler.mu.Unlock()
	status := make([]StoreStatus, 0, len(s.scheduler.members))
	for _, m := range s.scheduler.members {
		status = append(status, StoreStatus{
			Store: m.store.ID(), State: m.breaker.state, Since: m.breaker.since, LastError: m.breaker.cause,
			InFlight: m.inFlight, Claims: m.claims, Failures: m.failures, Messages: m.messages})
	}
	return status
}
