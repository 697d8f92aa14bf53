package stores

// FairConfig configures Fair.
type FairConfig struct {
	// MaxShare is the part of all messages in flight that one store may have, above 0 and up to 1: however many it has, and
	// however long its handlers take, the rest is left for others. Defaults to 0.5.
	MaxShare float64
}

// Fair gives each store that has messages a part of the work that goes by its Weight, whatever it has waiting, and no more
// than its share of what may be in flight. A store that had nothing to do for a while has not saved up for later, and one that
// a claim has emptied goes behind those that wait: many stores that are polled for little do not keep out one with much.
type Fair struct {
	share    float64
	accounts map[string]*account // by store
	now      float64             // how far the store had come that was last chosen: whoever is behind starts from there
	front    float64             // how far the one has come that is furthest
}

// An account is how far a store has come.
type account struct {
	claimed, emptied int64   // of Candidate, when it was last looked at
	passed           float64 // messages claimed, divided by the weight
}

var _ SelectionStrategy = (*Fair)(nil)

// NewFair returns the strategy for one Subscriber.
func NewFair(config FairConfig) (*Fair, error) {
	setDefault(&config.MaxShare, 0.5)
	if !(config.MaxShare > 0 && config.MaxShare <= 1) { // also what is not a number
		return nil, badField("FairConfig.MaxShare", "%v is not above 0 and up to 1", config.MaxShare)
	}
	return &Fair{share: config.MaxShare, accounts: map[string]*account{}}, nil
}

// Next implements SelectionStrategy.
func (f *Fair) Next(stores []Candidate, last Turn) (index, limit int) {
	index = -1
	var chosen *account
	from := 1 + find(stores, last.Store) // equals take turns
	for i := range stores {
		at := (from + i) % len(stores)
		a := f.account(&stores[at])
		if stores[at].State != Ready || f.room(&stores[at]) <= 0 {
			continue
		}
		a.passed = max(a.passed, f.now)
		if chosen == nil || a.passed < chosen.passed {
			index, chosen = at, a
		}
	}
	if len(f.accounts) > len(stores) {
		f.forget(stores)
	}
	if chosen == nil {
		return -1, 0
	}
	f.now = chosen.passed
	return index, f.room(&stores[index])
}

// account is that of a store, with what it has claimed since.
func (f *Fair) account(c *Candidate) *account {
	a := f.accounts[c.ID]
	if a == nil || c.Claimed < a.claimed { // another store now, under the same identifier
		a = &account{passed: f.now}
		f.accounts[c.ID] = a
	}
	a.passed += float64(c.Claimed-a.claimed) / float64(c.Weight)
	f.front = max(f.front, a.passed)
	if c.Emptied > a.emptied {
		a.passed = f.front
	}
	a.claimed, a.emptied = c.Claimed, c.Emptied
	return a
}

// forget drops the accounts of stores that are gone.
func (f *Fair) forget(stores []Candidate) {
	for id := range f.accounts {
		if find(stores, id) < 0 {
			delete(f.accounts, id)
		}
	}
}

// room is how many more messages a store may have in flight.
func (f *Fair) room(c *Candidate) int {
	return max(1, int(f.share*float64(c.Total))) - c.InFlight
}
