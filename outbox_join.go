package outbox

import (
	"database/sql"
	"strings"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/incursa/watermill-outbox/internal/base"
)

// Joins are package join. Settling has a part in them: it counts an ended message in the joins that it is a step of, and
// reports the joins that this has ended.

// A JoinEvent reports a join that has ended. In a caller's transaction, it may still be rolled back.
type JoinEvent struct {
	ID                base.JoinID     // a join.ID
	Status            base.JoinStatus // a join.Status: join.Completed, join.Failed or join.Cancelled
	Expected          int             // 0 if it ended before it was sealed
	Completed, Failed int
	Store             string // of the outbox's configuration
}

// receiptBusy is the status of a receipt that settling skipped because its row was locked.
const receiptBusy = 1

// countRow is a row returned by operations that count steps. A positive seq is a receipt that was refused or is busy, 0 is a
// join that has ended, and a negative seq is a refusal. Of outbox_end, a positive seq is a message that it ended.
type countRow struct {
	seq                         int64
	id                          string
	topic                       sql.NullString // of a message that waited for the join
	status                      sql.NullInt64
	expected, completed, failed sql.NullInt64
}

// scan returns a refusal as an error, which rolls the operation back.
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
func (o *Outbox) joinsEnded(x Executor, rows []countRow) error {
	told := map[string]bool{} // a join has one row per topic
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
		o.wakeAfter(x, topics)
	}
	return nil
}
