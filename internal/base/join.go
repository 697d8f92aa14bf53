package base

import "fmt"

// JoinStatus is the state of a join.
type JoinStatus int

// The states of a join. All but JoinPending are final.
const (
	JoinPending   JoinStatus = 0
	JoinCompleted JoinStatus = 1
	JoinFailed    JoinStatus = 2
	JoinCancelled JoinStatus = 3
)

func (s JoinStatus) String() string {
	switch s {
	case JoinPending:
		return "pending"
	case JoinCompleted:
		return "completed"
	case JoinFailed:
		return "failed"
	case JoinCancelled:
		return "cancelled"
	default:
		return fmt.Sprintf("join status %d", int(s))
	}
}

// A JoinRefusal is returned when the database refuses a change to a join.
type JoinRefusal struct {
	Reason JoinReason
	ID     string // of the join, or of the message that is missing
}

func (r *JoinRefusal) Error() string { return fmt.Sprintf("refused for reason %d: %s", r.Reason, r.ID) }

// JoinReason says why a change was refused.
type JoinReason int64

// The reasons, as the operations return them.
const (
	NoSuchJoin    JoinReason = -1
	JoinHasEnded  JoinReason = -2
	JoinIsFull    JoinReason = -3
	NoSuchMessage JoinReason = -4
	NotAStep      JoinReason = -5
	IsLogOnly     JoinReason = -6
)
