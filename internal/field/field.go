// Package field sets the defaults of config fields, and reports fields that are invalid.
package field

import (
	"errors"
	"fmt"
	"strings"

	"github.com/incursa/watermill-outbox/internal/limits"
)

// An Error says which field of a message or a configuration is invalid, and why: see outbox.FieldError.
type Error struct {
	Field  string // as in Go, e.g. "Topic" or "SubscriberConfig.MaxInFlight"
	Reason string // what is wrong and what to do
}

func (e *Error) Error() string { return fmt.Sprintf("outbox: %s: %s", e.Field, e.Reason) }

// Default sets a field to a value if it is zero.
func Default[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Bad returns an *Error for the field of this name. The format and its arguments make the Reason.
func Bad(name, format string, args ...any) error {
	return &Error{Field: name, Reason: fmt.Sprintf(format, args...)}
}

// Key returns an *Error if a text that databases compare, such as a topic, breaks limits.Key.
func Key(name, text string) error { return Problem(name, limits.Key(text)) }

// Text returns an *Error if a short text breaks limits.Text.
func Text(name, text string) error { return Problem(name, limits.Text(text)) }

// Problem returns an *Error whose Reason is problem, or nil if problem is empty.
func Problem(name, problem string) error {
	if problem == "" {
		return nil
	}
	return &Error{Field: name, Reason: problem}
}

// Of replaces the name of the config in the field of an *Error, if it has one, or adds it. It returns other errors as they are.
func Of(config string, err error) error {
	var bad *Error
	if errors.As(err, &bad) {
		return In(config, &Error{Field: bad.Field[strings.LastIndexByte(bad.Field, '.')+1:], Reason: bad.Reason})
	}
	return err
}

// In adds the name of a config to the field of an *Error. It returns other errors as they are.
func In(config string, err error) error {
	var bad *Error
	if errors.As(err, &bad) {
		return &Error{Field: config + "." + bad.Field, Reason: bad.Reason}
	}
	return err
}
