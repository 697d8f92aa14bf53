package outbox

import (
	"context"
	"database/sql"
	"strings"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/incursa/watermill-outbox/internal/base"
)

// Joins themselves are package join. Here is what settling has to do with them: it counts a message that has ended in the
// joins whose step it is, and tells which joins that has ended.

// A JoinEvent tells of a join that has ended. Its transaction may yet be rolled back where it is a caller's.
type JoinEvent struct {
	ID                base.JoinID     // a join.ID
	Status            base.JoinStatus // a join.Status: Completed, Failed or Cancelled
	Expected          int             // 0 if it ended before it was sealed
	Completed, Failed int
	Store             string // of the outbox's configuration
}

// receiptBusy is the status under which settling answers with a receipt that it has passed over.
const receiptBusy = 1

// countRow is a row that operations answer with if they count steps: under a seq above 0 a receipt that was refused, or is
// busy, under 0 a join that has ended, below it a refusal.
type countRow struct {
	seq                         int64
	id                          string
	topic                       sql.NullString // of a message that waited for the join
	status                      sql.NullInt64
	expected, completed, failed sql.NullInt64
}

// scan ends the operation, and what it has done, with a refusal.
func (r *countRow) scan(rows *sql.Rows) error {
	if err := rows.Scan(&r.seq, &r.id, &r.topic, &r.status, &r.expected, &r.completed, &r.failed); err != nil {
		return err
	}
	return r.refusal()
}

func (r *countRow) refusal() error {
	if r.seq < 0 {
		return &base.JoinRefusal{Reason: base.JoinReason(r.seq), ID: strings.ToLower(r.id)} // SQL Server writes ids in capitals
	}
	return nil
}

// joinsEnded looks through the rows for joins that have ended.
func (o *Outbox) joinsEnded(ctx context.Context, x Executor, rows []countRow) error {
	told := map[string]bool{} // a join has a row for each topic
	var topics []string
	for _, r := range rows {
		if r.seq != 0 {
			continue
		}
		if r.topic.Valid {
			topics = append(topics, r.topic.String)
		}
		if told[r.id] {
			continue
		}
		told[r.id] = true
		id, err := base.ParseJoinID(r.id)
		if err != nil {
			return err
		}
		e := JoinEvent{id, base.JoinStatus(r.status.Int64), int(r.expected.Int64), int(r.completed.Int64), int(r.failed.Int64), o.config.Store}
		o.logger.Info("Join ended", watermill.LogFields{"join_id": id.String(), "status": e.Status.String(),
			"expected": e.Expected, "completed": e.Completed, "failed": e.Failed})
		o.config.Hooks.joinEnded(e)
	}
	if len(topics) > 0 {
		o.wakeAfter(ctx, x, topics)
	}
	return nil
}
