package base

import "errors"

// ErrLeaseHeld is returned by a cursor while another reader has the group's lease.
var ErrLeaseHeld = errors.New("outbox: another reads the log for this group")

// A LeaseHeldError is an ErrLeaseHeld with the version and shape of the reader that has the lease.
type LeaseHeldError struct {
	Version, Shape int64
}

func (e *LeaseHeldError) Error() string { return ErrLeaseHeld.Error() }
func (e *LeaseHeldError) Unwrap() error { return ErrLeaseHeld }

// ErrNilDB is returned when a required database handle is nil.
var ErrNilDB = errors.New("outbox: the database handle is nil; pass an open *sql.DB, *sql.Conn or *sql.Tx")

// Unavailable marks an error as an outage: see outbox.Unavailable.
func Unavailable(err error) error {
	if err == nil {
		return nil
	}
	return &unavailableError{err}
}

type unavailableError struct{ err error }

func (e *unavailableError) Error() string { return e.err.Error() }
func (e *unavailableError) Unwrap() error { return e.err }

// IsUnavailable reports whether err, or an error it wraps, was marked by Unavailable.
func IsUnavailable(err error) bool {
	var u *unavailableError
	return errors.As(err, &u)
}
