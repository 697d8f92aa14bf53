package stores

// A SelectionStrategy chooses the store whose messages are claimed next. It is called with a lock held: it must be quick and
// must not call the Subscriber. Do not share one between Subscribers.
//
// A Subscriber has as many lanes as its Concurrency. Each chooses a store, lets it claim a batch, and chooses again.
type SelectionStrategy interface {
	// Next chooses among all stores, in the order of the Provider. last is the previous turn on the lane. It returns the
	// index of a Ready store and the most messages that it may claim, or 0 for as many as there is room for. Any other index
	// makes the lane wait until something changes.
	Next(stores []Candidate, last Turn) (index, limit int)
}

// A Candidate is a store as a SelectionStrategy sees it.
type Candidate struct {
	ID       string
	Weight   int
	Claimed  int64 // messages, since the store was added
	Emptied  int64 // claims since then that left nothing behind
	InFlight int   // messages that are claimed and not yet answered, or are being claimed
	Total    int   // the most messages that may be in flight over all stores
	State    CandidateState
}

// CandidateState says what a store is doing.
type CandidateState int

// The states.
const (
	Waiting CandidateState = iota // it does not want to claim now: it has no messages, or no room for more
	Ready                         // it wants to claim
	Taken                         // another lane has it
	Away                          // its breaker is open
)

// A Turn is the result of a claim.
type Turn struct {
	Store    string // its identifier; empty before the first turn
	Messages int    // that were claimed
	Failed   bool   // the store could not be reached
}

// RoundRobin goes through the stores in order and takes one batch from each. Stores that do not want to claim are skipped.
type RoundRobin struct{}

var _ SelectionStrategy = RoundRobin{}

// Next implements SelectionStrategy.
func (RoundRobin) Next(stores []Candidate, last Turn) (index, limit int) {
	return nextReady(stores, last.Store), 0
}

// nextReady is the first store after another that is ready, or -1.
func nextReady(stores []Candidate, after string) int {
	from := 1 + find(stores, after)
	for i := range stores {
		if at := (from + i) % len(stores); stores[at].State == Ready {
			return at
		}
	}
	return -1
}

// find is the index of a store, or -1.
func find(stores []Candidate, id string) int {
	for i := range stores {
		if stores[i].ID == id {
			return i
		}
	}
	return -1
}

// DrainFirst stays with a store until a claim finds no messages there, and then moves on to the next. While that store has
// no room for more messages, the lane waits for its handlers. With a Concurrency above 1, that many stores are drained at a
// time.
type DrainFirst struct{}

var _ SelectionStrategy = DrainFirst{}

// Next implements SelectionStrategy.
func (DrainFirst) Next(stores []Candidate, last Turn) (index, limit int) {
	at := find(stores, last.Store)
	if at < 0 || last.Failed || last.Messages == 0 {
		return nextReady(stores, last.Store), 0
	}
	switch stores[at].State {
	case Ready:
		return at, 0
	case Waiting:
		return -1, 0
	case Taken, Away:
	}
	return nextReady(stores, last.Store), 0
}
