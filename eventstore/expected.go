package eventstore

import (
	"errors"
	"fmt"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/field"
)

// Expected is what an append expects of its stream. The zero value is refused: a check that was forgotten must not mean Any.
type Expected struct {
	set     bool
	version int64
}

// Any expects nothing, NoStream that the stream has no events, and StreamExists that it has some.
var (
	Any          = Expected{true, base.AnyVersion}
	NoStream     = Expected{true, base.NoStream}
	StreamExists = Expected{true, base.StreamExists}
)

// Exactly expects that the stream's last event has this version. Exactly(0) is NoStream.
func Exactly(version int64) Expected {
	if version < 0 {
		version = negative
	}
	return Expected{true, version}
}

// negative is refused, and none of the versions of package base.
const negative int64 = -3

func (e Expected) String() string {
	switch {
	case !e.set:
		return "nothing"
	case e.version == base.AnyVersion:
		return "any version"
	case e.version == base.StreamExists:
		return "a stream"
	case e.version == base.NoStream:
		return "no stream"
	default:
		return fmt.Sprintf("version %d", e.version)
	}
}

func (e Expected) validate() error {
	switch {
	case !e.set:
		return field.Bad("Expected", "is not set; use Exactly, NoStream, StreamExists or Any")
	case e.version == negative:
		return field.Bad("Expected", "is a negative version; versions begin with 1")
	default:
		return nil
	}
}

// ErrVersionConflict is what a *VersionError is, for errors.Is.
var ErrVersionConflict = errors.New("eventstore: the stream has another version than expected")

// A VersionError says that a stream did not have the version that was expected of it: read what is new there, decide again,
// and append that. Nothing was written, and the caller's transaction can go on.
type VersionError struct {
	Stream   string
	Expected Expected
	Actual   int64 // the version of its last event; 0 if it has none
}

func (e *VersionError) Error() string {
	is, expected, advice := fmt.Sprintf("is at version %d", e.Actual), fmt.Sprintf("%v was expected", e.Expected), ""
	if e.Actual == 0 {
		is = "has no events"
	}
	switch {
	case e.Expected == StreamExists:
		expected = "some were expected"
	case e.Expected == NoStream:
		expected, advice = "was expected to be new", "; read what is there, decide again, append that"
	case e.Actual > e.Expected.version:
		advice = "; read what is new, decide again, append that"
	}
	return fmt.Sprintf("eventstore: the stream %q %s, and %s%s", e.Stream, is, expected, advice)
}

// Is reports whether target is ErrVersionConflict.
func (e *VersionError) Is(target error) bool { return target == ErrVersionConflict }

// ErrArchived is returned for an archived stream, by Append and, unless ReadParams say otherwise, by Read.
var ErrArchived = base.ErrStreamArchived

// ErrNotPassed is returned by Purge if events are left, because they have no position yet, or because a consumer group has not
// passed them or keeps them as dead letters.
var ErrNotPassed = errors.New("eventstore: not every consumer group has passed all events that are to be purged")

// ErrDuplicate is returned by Append if events with these ids exist, but not all of them, or not in this order, in this stream
// and with this content. It is outbox.ErrDuplicateID. Nothing was written, and the caller's transaction can go on.
var ErrDuplicate = outbox.ErrDuplicateID
