package join

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/field"
)

// A Join is the state of a join when it was read. Times are UTC, by the database's clock.
type Join struct {
	ID            ID
	GroupingKey   string
	Status        Status
	Open          bool // steps are added until it is sealed
	ExpectedSteps int  // 0 while it is open
	Quorum        int  // 0 for none
	FailFast      bool

	// CompletedSteps and FailedSteps count while the join is pending, and stay as they were when it ended.
	CompletedSteps, FailedSteps int

	Metadata      string
	CreatedAt     time.Time
	LastUpdatedAt time.Time
}

// StepStatus is the state of one step.
type StepStatus int

// The states of a step. A step changes state once.
const (
	StepPending   StepStatus = 0
	StepCompleted StepStatus = 1
	StepFailed    StepStatus = 2
)

func (s StepStatus) String() string {
	switch s {
	case StepPending:
		return "pending"
	case StepCompleted:
		return "completed"
	case StepFailed:
		return "failed"
	default:
		return fmt.Sprintf("step status %d", int(s))
	}
}

// A Step is a message, or another join, that a join waits for.
type Step struct {
	MessageID outbox.MessageID // for another join, its id
	Status    StepStatus
	ByReport  bool // it ends by a report, not when the message is settled
	CreatedAt time.Time
}

// maxPage is the longest page.
const maxPage = 1000

// Get reads a join. It returns ErrNotFound if there is none with this id.
func (c *Coordinator) Get(ctx context.Context, x outbox.Executor, id ID) (Join, error) {
	if err := validateID(id); err != nil {
		return Join{}, err
	}
	joins, err := c.list(ctx, x, listArg{ID: &id, Limit: 1})
	if err != nil {
		return Join{}, fmt.Errorf("read the join %v: %w", id, err)
	}
	if len(joins) == 0 {
		return Join{}, fmt.Errorf("read the join %v: %w", id, ErrNotFound)
	}
	return joins[0], nil
}

// ByGroup reads a page of the joins with a grouping key, at most limit, 1 to 1,000, in order of id, which is the order in
// which they started. after is the last id of the previous page, or zero.
func (c *Coordinator) ByGroup(ctx context.Context, x outbox.Executor, key string, after ID, limit int) ([]Join, error) {
	if key == "" {
		return nil, field.Bad("key", "is empty; Pending and Recent list joins of any grouping key, and without")
	}
	return c.page(ctx, x, "the joins of a group", listArg{GroupingKey: key, After: afterID(after), Limit: limit})
}

// Pending reads a page of the joins that have not ended, at most limit, 1 to 1,000, in order of id: those that have been
// pending for longest come first. after is the last id of the previous page, or zero. On SQL Server it leaves out a join
// whose row somebody has locked.
func (c *Coordinator) Pending(ctx context.Context, x outbox.Executor, after ID, limit int) ([]Join, error) {
	return c.page(ctx, x, "the pending joins", listArg{Pending: true, After: afterID(after), Limit: limit})
}

// Recent reads a page of all joins, at most limit, 1 to 1,000, those that started last first. before is the last id of the
// previous page, or zero. On SQL Server it leaves out a join whose row somebody has locked.
func (c *Coordinator) Recent(ctx context.Context, x outbox.Executor, before ID, limit int) ([]Join, error) {
	return c.page(ctx, x, "the recent joins", listArg{Newest: true, Before: afterID(before), Limit: limit})
}

func (c *Coordinator) page(ctx context.Context, x outbox.Executor, what string, arg listArg) ([]Join, error) {
	if err := validateLimit(arg.Limit); err != nil {
		return nil, err
	}
	joins, err := c.list(ctx, x, arg)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", what, err)
	}
	return joins, nil
}

type listArg struct {
	ID          *ID     `json:"id,omitempty"`
	GroupingKey string  `json:"grouping_key,omitempty"`
	Pending     bool    `json:"pending,omitempty"`
	Newest      bool    `json:"newest,omitempty"`
	After       *string `json:"after,omitempty"`
	Before      *string `json:"before,omitempty"`
	Limit       int     `json:"limit"`
}

func (c *Coordinator) list(ctx context.Context, x outbox.Executor, arg listArg) (joins []Join, err error) {
	err = c.inside.Run(ctx, x, "outbox_join_list", arg, func(rows *sql.Rows) error {
		var j Join
		var id string
		var key, metadata sql.NullString
		var expected, quorum sql.NullInt64
		var created, updated int64
		err := rows.Scan(&id, &key, &expected, &j.CompletedSteps, &j.FailedSteps, &quorum, &j.FailFast, &j.Status, &metadata, &created, &updated)
		if err != nil {
			return err
		}
		if j.ID, err = ParseID(id); err != nil {
			return err
		}
		j.GroupingKey, j.Metadata = key.String, metadata.String
		j.ExpectedSteps, j.Open, j.Quorum = int(expected.Int64), !expected.Valid, int(quorum.Int64)
		j.CreatedAt, j.LastUpdatedAt = time.UnixMilli(created).UTC(), time.UnixMilli(updated).UTC()
		joins = append(joins, j)
		return nil
	})
	return joins, err
}

// Steps reads a page of the steps of a join, at most limit, 1 to 1,000, in order of message id. after is the last id of the
// previous page, or zero. A join that does not exist has no steps.
func (c *Coordinator) Steps(ctx context.Context, x outbox.Executor, id ID, after outbox.MessageID, limit int) (steps []Step, err error) {
	if err := validateID(id); err != nil {
		return nil, err
	}
	if err := validateLimit(limit); err != nil {
		return nil, err
	}
	err = c.inside.Run(ctx, x, "outbox_join_members", struct {
		ID    ID      `json:"id"`
		After *string `json:"after,omitempty"`
		Limit int     `json:"limit"`
	}{id, afterID(after), limit}, func(rows *sql.Rows) error {
		var s Step
		var message string
		var created int64
		if err := rows.Scan(&message, &s.ByReport, &s.Status, &created); err != nil {
			return err
		}
		if s.MessageID, err = base.ParseMessageID(message); err != nil {
			return err
		}
		s.CreatedAt = time.UnixMilli(created).UTC()
		steps = append(steps, s)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the steps of the join %v: %w", id, err)
	}
	return steps, nil
}

// Purge deletes the joins that ended longer ago than olderThan, with their steps, in small batches, and returns the number
// of joins. It never deletes a pending join, or one that a wait has yet to act on. When ctx ends, it returns what it has
// deleted so far and ctx's error.
func (c *Coordinator) Purge(ctx context.Context, olderThan time.Duration) (joins int, err error) {
	if olderThan < 0 {
		return 0, field.Bad("olderThan", "is negative")
	}
	for rows := 1; rows > 0; {
		rows = 0
		err := c.inside.Run(ctx, c.db, "outbox_join_purge", struct {
			OlderThanMS int64 `json:"older_than_ms"`
			Limit       int   `json:"limit"`
		}{olderThan.Milliseconds(), maxBatch}, func(r *sql.Rows) error {
			var affected, ended int
			err := r.Scan(&affected, &ended)
			rows, joins = rows+affected, joins+ended
			return err
		})
		if err != nil {
			return joins, fmt.Errorf("purge joins: %w", err)
		}
	}
	return joins, nil
}

func validateLimit(limit int) error {
	if limit < 1 || limit > maxPage {
		return field.Bad("limit", "%d is not between 1 and %d", limit, maxPage)
	}
	return nil
}

func afterID[AnID interface {
	ID | outbox.MessageID
	String() string
}](id AnID) *string {
	var zero AnID
	if id == zero {
		return nil
	}
	text := id.String()
	return &text
}
