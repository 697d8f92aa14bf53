package join

import "github.com/incursa/watermill-outbox/internal/base"

// ID names a join for its whole life (the specification's JoinIdentifier). It is 16 bytes, and text as a UUID is: String,
// MarshalText, UnmarshalText, ParseID.
type ID = base.JoinID

// ParseID reads the usual text form of a UUID.
func ParseID(text string) (ID, error) { return base.ParseJoinID(text) }

// Status is the state of a join.
type Status = base.JoinStatus

// The states of a join. All but Pending are its ends.
const (
	Pending   = base.JoinPending
	Completed = base.JoinCompleted
	Failed    = base.JoinFailed
	Cancelled = base.JoinCancelled
)
