package inbox

import (
	"errors"
	"fmt"
)

// Errors that callers can test for with errors.Is.
var (
	// ErrContentMismatch is returned, as a *MismatchError, when a message has a known key and different content.
	ErrContentMismatch = errors.New("inbox: another message was received under the same key")

	// ErrNotFound is returned when there is no entry with the key.
	ErrNotFound = errors.New("inbox: there is no such entry")
)

// A MismatchError reports two different messages with the same key: the sender used an id twice, or Source and MessageID do
// not distinguish what they should. No retry can help, so outbox.IsPermanent is true for it.
type MismatchError struct {
	Key      Key
	Known    Hash // of the message that was received first
	Received Hash
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("%v: %v has the hash %v, and one with %v was received before", ErrContentMismatch, e.Key, e.Received, e.Known)
}

// Unwrap returns ErrContentMismatch.
func (e *MismatchError) Unwrap() error { return ErrContentMismatch }
