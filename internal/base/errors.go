package base

import "errors"

// These are documented as outbox.ErrUnknownOutcome, ErrDuplicateID, ErrSchema and ErrSchemaNewer.
var (
	ErrUnknownOutcome = errors.New("outbox: the answer to a commit was lost, and the work may have been committed; check whether it was, or repeat it under the same ids")
	ErrDuplicateID    = errors.New("outbox: a message with this id already exists; leave Message.ID empty for a new one")
	ErrSchema         = errors.New("outbox: the schema is missing or out of date; run outbox.Migrate, or see outbox.Check for what is missing")
	ErrSchemaNewer    = errors.New("outbox: a newer version has migrated the database, and Migrate never goes back")
)

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
