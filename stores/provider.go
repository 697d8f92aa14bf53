package stores

import (
	"fmt"
	"slices"

	"github.com/incursa/watermill-outbox/internal/field"
)

// A Provider knows the stores. It must be safe for concurrent use.
type Provider interface {
	// Stores returns the current stores, in a stable order and with distinct identifiers, and a channel that is closed when
	// they change. The caller must not change the list. A nil channel means that they never change.
	Stores() (present []*Store, changed <-chan struct{})
}

// Static is a Provider of stores that are known at the start.
type Static struct{ stores []*Store }

var _ Provider = (*Static)(nil)

// NewStatic returns a provider of these stores, in this order. It returns ErrDuplicateStore, with the identifier, if two
// have the same.
func NewStatic(stores ...*Store) (*Static, error) {
	seen := map[string]bool{}
	for i, s := range stores {
		if s == nil {
			return nil, field.Bad("stores", "number %d is nil; pass what New returns", i+1)
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
