package stores

// A SelectionStrategy chooses the store whose messages are claimed next. It is called with a lock held: it must be quick and
// must not call the Subscriber. One Subscriber has it to itself.
//
// A Subscriber has as many lanes as its Concurrency, and each works as if it were alone: it chooses a store, has it claim a
// batch, and chooses again.
type SelectionStrategy interface {
	// Next chooses among the stores, which are all there are, in the order of the Provider. last is the turn that ended
	// last on the lane. The answer is the index of a store that is Ready, and the most messages that it
	// may claim, 0 for as many as there is room for. Any other index has the lane wait until something changes.
	Next(stores []Candidate, last Turn) (index, limit int)
}

// A Candidate is a store as a SelectionStrategy sees it.
type Candidate struct {
	ID       string
	Weight   int
	Claimed  int64 // messages, since the Subscriber has the store
	Emptied  int64 // claims since then that found fewer messages than they might take: nothing was left
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

// A Turn is what came of a claim.
type Turn struct {
	Store    string // its identifier; empty if there was no turn yet
	Messages int    // that were claimed
	Failed   bool   // the store could not be reached
}

// RoundRobin goes through the stores in order, one batch from each before it moves on to the next. Stores that do not want
// to claim are passed over.
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
// no room for more messages the lane waits for its handlers; with a Concurrency above 1 as many stores are drained at a
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
