package stores

import (
	"fmt"
	"slices"
)

// A Provider knows which stores there are. It must be safe for concurrent use.
type Provider interface {
	// Stores returns the present stores, in an order that stays the same and with identifiers that are all different, and a
	// channel that is closed when there are others. The caller does not change the list. A nil channel means that it always
	// stays as it is.
	Stores() (present []*Store, changed <-chan struct{})
}

// Static is a Provider of stores that are known at the start.
type Static struct{ stores []*Store }

var _ Provider = (*Static)(nil)

// NewStatic returns a provider of these stores, in this order. An identifier that comes twice is an error that names it.
func NewStatic(stores ...*Store) (*Static, error) {
	seen := map[string]bool{}
	for i, s := range stores {
		if s == nil {
			return nil, badField("stores", "number %d is nil; pass what New returns", i+1)
		}
		if seen[s.ID()] {
			return nil, fmt.Errorf("%w: %q", ErrDuplicateStore, s.ID())
		}
		seen[s.ID()] = true
	}
	return &Static{slices.Clone(stores)}, nil
}

// Stores implements Provider.
func (s *Static) Stores() ([]*Store, <-chan struct{}) { return s.stores, nil }
