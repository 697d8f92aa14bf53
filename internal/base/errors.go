package base

import "errors"

// ErrLeaseHeld is returned by a cursor while another reads for its group.
var ErrLeaseHeld = errors.New("outbox: another reads the log for this group")

// A LeaseHeldError is what ErrLeaseHeld comes with: the version and shape of the reader that has the lease.
type LeaseHeldError struct {
	Version, Shape int64
}

func (e *LeaseHeldError) Error() string { return ErrLeaseHeld.Error() }
func (e *LeaseHeldError) Unwrap() error { return ErrLeaseHeld }
