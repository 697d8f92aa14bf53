package stores

import "errors"

// Errors that callers can test for with errors.Is. The returned error names the store or the key.
var (
	// ErrUnknownStore is returned by a Router if no store has the key.
	ErrUnknownStore = errors.New("stores: there is no store with this key; check the tenant, or wait until it is discovered")

	// ErrDuplicateStore means that two databases have the same identifier.
	ErrDuplicateStore = errors.New("stores: two databases have the same identifier")
)
