package admin

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/base"
)

// ErrNotFound is returned when there is no message with the id: it was purged, or deleted on acknowledgement. It is also
// returned when there is no consumer group of a name.
var ErrNotFound = errors.New("admin: there is no such message in this outbox")

// A Story is what is known of a message. Times are UTC, by the database's clock.
type Story struct {
	Record   outbox.Record
	Attempts []Attempt // that did not succeed, the latest 1,000, oldest first
	Log      *LogPlace // nil if it is not for the log
	Stream   *StreamPlace
	Joins    []JoinPlace
	GivenUp  []GivenUp
}

// An Attempt did not succeed.
type Attempt struct {
	At      time.Time
	Number  int
	Outcome AttemptOutcome
	Worker  string
	Error   string
}

// AttemptOutcome says how an attempt ended.
type AttemptOutcome int

// The ends of attempts that are recorded.
const (
	Retried    AttemptOutcome = 1
	Released   AttemptOutcome = 2
	GaveUp     AttemptOutcome = 3
	Expired    AttemptOutcome = 4
	ByOperator AttemptOutcome = 5 // no attempt: an operator ended the message
)

func (o AttemptOutcome) String() string {
	switch o {
	case Retried:
		return "retried"
	case Released:
		return "released"
	case GaveUp:
		return "failed"
	case Expired:
		return "lease expired"
	case ByOperator:
		return "ended by an operator"
	default:
		return fmt.Sprintf("outcome %d", int(o))
	}
}

// A LogPlace is where a message is in the log. Position is 0 until a Sequencer has given it one.
type LogPlace struct {
	Position int64
	LoggedAt time.Time
}

// A StreamPlace is where a message is in the queue of its stream.
type StreamPlace struct {
	StreamKey string
	Ahead     int // messages before it, counted up to 10,000
	State     StreamState
}

// StreamState is the state of a stream.
type StreamState int

// The states of a stream.
const (
	StreamReady   StreamState = 0
	StreamLeased  StreamState = 1
	StreamBlocked StreamState = 2
)

func (s StreamState) String() string {
	switch s {
	case StreamReady:
		return "ready"
	case StreamLeased:
		return "being handled"
	case StreamBlocked:
		return "blocked"
	default:
		return fmt.Sprintf("stream state %d", int(s))
	}
}

// A JoinPlace is a join that has the message as a step.
type JoinPlace struct {
	Join        base.JoinID // a join.ID
	GroupingKey string
	Status      base.JoinStatus // of the join: a join.Status, whose constants are in package join
	StepStatus  base.JoinStatus // of the step: join.Pending, join.Completed or join.Failed
	ByReport    bool
	AttachedAt  time.Time
}

// A GivenUp is a consumer group that could not handle the message and has passed it.
type GivenUp struct {
	Group    string
	At       time.Time
	Attempts int
	Reason   string
}

// Story reads everything that is known of a message. It returns ErrNotFound.
func (a *Admin) Story(ctx context.Context, id outbox.MessageID) (*Story, error) {
	records, err := a.outbox.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	if len(records) == 0 {
		return nil, ErrNotFound
	}
	story := &Story{Record: records[0]}
	arg := struct {
		ID    outbox.MessageID `json:"id"`
		Limit int              `json:"limit"`
	}{id, eventCap}
	if err := a.call(ctx, "outbox_story", arg, story.scanEvent); err != nil {
		return nil, err
	}
	slices.SortStableFunc(story.Attempts, func(a, b Attempt) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Number, b.Number)) })
	if err := a.call(ctx, "outbox_join_of", arg, story.scanJoin); err != nil && !errors.Is(err, outbox.ErrSchema) {
		return nil, err // an outbox may be without joins
	}
	return story, nil
}

func (s *Story) scanEvent(rows *sql.Rows) error {
	var kind string
	var at, number, status sql.NullInt64
	var name, detail sql.NullString
	if err := rows.Scan(&kind, &at, &number, &status, &name, &detail); err != nil {
		return err
	}
	switch kind {
	case "attempt":
		s.Attempts = append(s.Attempts, Attempt{At: fromMillis(at), Number: int(number.Int64), Outcome: AttemptOutcome(status.Int64),
			Worker: name.String, Error: detail.String})
	case "unlogged", "logged":
		s.Log = &LogPlace{Position: number.Int64, LoggedAt: fromMillis(at)}
	case "stream":
		s.Stream = &StreamPlace{StreamKey: s.Record.StreamKey, Ahead: int(number.Int64), State: StreamState(status.Int64)}
	case "given up":
		s.GivenUp = append(s.GivenUp, GivenUp{Group: name.String, At: fromMillis(at), Attempts: int(status.Int64), Reason: detail.String})
	default:
		return fmt.Errorf("an event of the unknown kind %q", kind)
	}
	return nil
}

func (s *Story) scanJoin(rows *sql.Rows) error {
	var j JoinPlace
	var id string
	var attached sql.NullInt64
	var key sql.NullString
	if err := rows.Scan(&id, &j.StepStatus, &j.ByReport, &attached, &j.Status, &key); err != nil {
		return err
	}
	var err error
	if j.Join, err = base.ParseJoinID(id); err != nil {
		return err
	}
	j.GroupingKey, j.AttachedAt = key.String, fromMillis(attached)
	s.Joins = append(s.Joins, j)
	return nil
}
