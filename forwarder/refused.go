package forwarder

import "errors"

// Refused marks a Publisher's error as the broker's answer to this very message, so that it is not taken for an outage even
// if nothing else gets through. The message goes back to the outbox, which spends an attempt and tries again after a
// backoff. Refused(nil) is nil.
func Refused(err error) error {
	if err == nil {
		return nil
	}
	return &refusedError{err}
}

type refusedError struct{ err error }

func (e *refusedError) Error() string { return e.err.Error() }
func (e *refusedError) Unwrap() error { return e.err }

// IsRefused reports whether err, or an error it wraps, was marked by Refused.
func IsRefused(err error) bool {
	var r *refusedError
	return errors.As(err, &r)
}
