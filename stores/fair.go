package stores

import "github.com/incursa/watermill-outbox/internal/field"

// FairConfig configures Fair.
type FairConfig struct {
	// MaxShare is the largest share of all messages in flight that one store may have, above 0 and up to 1. However long its
	// backlog, and however slow its handlers, the rest is left for other stores. Defaults to 0.5.
	MaxShare float64
}

// Fair gives each store that has messages a share of the work according to its Weight, whatever its backlog, and no more
// than MaxShare of the messages in flight. An idle store earns no credit for later, and a store that a claim has emptied
// goes to the back: many stores with little to do do not crowd out one with much.
type Fair struct {
	share    float64
	accounts map[string]*account // by store
	now      float64             // progress of the store chosen last: stores behind it start from there
	front    float64             // progress of the store that is furthest
}

// An account is the progress of a store.
type account struct {
	claimed, emptied int64   // of Candidate, at the last look
	passed           float64 // messages claimed, divided by the weight
}

var _ SelectionStrategy = (*Fair)(nil)

// NewFair returns the strategy for one Subscriber.
func NewFair(config FairConfig) (*Fair, error) {
	field.Default(&config.MaxShare, 0.5)
	if !(config.MaxShare > 0 && config.MaxShare <= 1) { // NaN too
		return nil, field.Bad("FairConfig.MaxShare", "%v is not above 0 and up to 1", config.MaxShare)
	}
	return &Fair{share: config.MaxShare, accounts: map[string]*account{}}, nil
}

// Next implements SelectionStrategy.
func (f *Fair) Next(stores []Candidate, last Turn) (index, limit int) {
	index = -1
	var chosen *account
	from := 1 + find(stores, last.Store) // equal stores take turns
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

// account returns a store's account, with what it has claimed since.
func (f *Fair) account(c *Candidate) *account {
	a := f.accounts[c.ID]
	if a == nil || c.Claimed < a.claimed { // another store under the same identifier
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
