package admin

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/field"
)

// A Message is a message without its payload and headers, which Outbox.Get reads. Times are UTC, by the database's clock.
type Message struct {
	ID            outbox.MessageID
	Seq           outbox.WorkItemID
	UUID          string
	Topic         string
	CorrelationID string
	StreamKey     string
	Status        outbox.Status
	RetryCount    int // as in outbox.Record
	Size          int // of payload and headers, in bytes
	CreatedAt     time.Time
	NextAttemptAt time.Time // zero for messages that are only in the log
	EndedAt       time.Time // when it was done or failed; zero before
	EndedBy       string    // the worker that ended it
	LastError     string    // its first 1,000 characters
}

// ListParams select messages to list.
type ListParams struct {
	Filter

	// After is the Next of the page before. Defaults to the beginning.
	After Mark

	// Limit is the most messages to return, 1 to 1,000. Defaults to 100.
	Limit int

	// Examine is the most messages to look at, whether they match or not, at least 1. Defaults to 100,000.
	Examine int
}

func (p *ListParams) check() error {
	field.Default(&p.Limit, 100)
	field.Default(&p.Examine, 100_000)
	switch {
	case p.Limit < 1 || p.Limit > maxBatch:
		return field.Bad("ListParams.Limit", "is not in the range 1 to %d", maxBatch)
	case p.Examine < 1:
		return field.Bad("ListParams.Examine", "is less than 1")
	}
	return field.In("ListParams", p.validate())
}

// A List is a page of messages.
type List struct {
	Messages []Message

	// Next is where the next page begins, or the zero Mark if there is nothing more.
	Next Mark

	// Examined is how many messages were looked at.
	Examined int
}

// Failed lists dead letters, the most recently failed first. It returns a *outbox.FieldError for bad parameters.
func (a *Admin) Failed(ctx context.Context, params ListParams) (List, error) {
	if err := params.check(); err != nil {
		return List{}, err
	}
	if params.States != nil {
		return List{}, field.Bad("ListParams.Filter.States", "is set, but dead letters have only one state")
	}
	return a.list(ctx, "outbox_dead_scan", params)
}

// Messages lists messages of any state, the most recently published first. It returns a *outbox.FieldError for bad
// parameters.
func (a *Admin) Messages(ctx context.Context, params ListParams) (List, error) {
	if err := params.check(); err != nil {
		return List{}, err
	}
	return a.list(ctx, "outbox_list", params)
}

// list walks until the page is full. A batch of a search is large, because few of it may match; the page then ends within a
// batch, at the last message that fits.
func (a *Admin) list(ctx context.Context, op string, params ListParams) (page List, err error) {
	arg := params.arg()
	arg.Newest = true
	arg.continueAt(params.After)
	for page.Examined < params.Examine {
		left := params.Limit - len(page.Messages)
		arg.Scan = min(left+1, maxBatch)
		if params.texts() || params.States != nil || op == "outbox_list" {
			arg.Scan = min(maxBatch, params.Examine-page.Examined)
		}
		step, err := a.walk(ctx, op, arg)
		if err != nil {
			return List{}, err
		}
		page.Examined += step.examined
		if len(step.found) > left {
			page.Messages = append(page.Messages, step.messages(left)...)
			page.Next = step.found[left-1].mark(step.end.until)
			return page, nil
		}
		page.Messages = append(page.Messages, step.messages(len(step.found))...)
		if step.examined < arg.Scan || op == "outbox_list" && arg.before(step.end) {
			page.Next = Mark{}
			return page, nil
		}
		page.Next = step.end
		if left == len(step.found) {
			return page, nil
		}
		arg.continueAt(step.end)
	}
	return page, nil
}

// A step is one call of a walk: what matched, in order, and where it ended.
type step struct {
	found    []found
	examined int
	end      Mark
	until    time.Time // of dead letters: the moment at which the walk began
}

type found struct {
	Message
	key int64
}

func (f *found) mark(until int64) Mark { return Mark{f.key, int64(f.Seq), until} }

func (s *step) messages(n int) []Message {
	messages := make([]Message, n)
	for i := range messages {
		messages[i] = s.found[i].Message
	}
	return messages
}

func (s *step) ids() []outbox.MessageID {
	ids := make([]outbox.MessageID, len(s.found))
	for i := range ids {
		ids[i] = s.found[i].ID
	}
	return ids
}

func (a *Admin) walk(ctx context.Context, op string, arg *walkArg) (*step, error) {
	s := &step{}
	if err := a.call(ctx, op, arg, s.scan); err != nil {
		return nil, err
	}
	slices.SortFunc(s.found, func(a, b found) int {
		order := cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.Seq, b.Seq))
		if arg.Newest {
			return -order
		}
		return order
	})
	// A call that lost a conflict was made again, and its first rows were read twice.
	s.found = slices.CompactFunc(s.found, func(a, b found) bool { return a.Seq == b.Seq })
	return s, nil
}

func (s *step) scan(rows *sql.Rows) error {
	var m found
	var id, uuid, topic, correlation, stream, by, lastError sql.NullString
	var created, next, ended, status, size, mark, until sql.NullInt64
	if err := rows.Scan(&m.Seq, &id, &uuid, &topic, &correlation, &stream, &created, &next, &ended, &status, &m.RetryCount, &size,
		&by, &lastError, &mark, &until); err != nil {
		return err
	}
	if !id.Valid {
		s.end, s.examined = Mark{mark.Int64, int64(m.Seq), until.Int64}, m.RetryCount
		if ended.Valid {
			s.until = time.UnixMicro(ended.Int64).UTC()
		}
		return nil
	}
	if err := m.ID.UnmarshalText([]byte(id.String)); err != nil {
		return err
	}
	m.UUID, m.Topic, m.CorrelationID, m.StreamKey = uuid.String, topic.String, correlation.String, stream.String
	m.CreatedAt, m.NextAttemptAt, m.EndedAt = fromMillis(created), fromMillis(next), fromMillis(ended)
	m.Status, m.Size, m.EndedBy, m.LastError = outbox.Status(status.Int64), int(size.Int64), by.String, lastError.String
	m.key = mark.Int64
	s.found = append(s.found, m)
	return nil
}

func fromMillis(ms sql.NullInt64) time.Time {
	if !ms.Valid {
		return time.Time{}
	}
	return time.UnixMilli(ms.Int64).UTC()
}
