package base

// A LeaseHeldError tells of the reader of the log that has a group's lease.
type LeaseHeldError struct {
	Version, Shape int64 // of that reader
	Err            error // outbox.ErrLeaseHeld
}

func (e *LeaseHeldError) Error() string { return e.Err.Error() }
func (e *LeaseHeldError) Unwrap() error { return e.Err }
