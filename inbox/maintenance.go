package inbox

import (
	"context"
	"database/sql"

	outbox "github.com/incursa/watermill-outbox"
)

// Requeue makes the messages ready again whose entries have failed, with a fresh retry budget, and returns how many. Entries
// that have not failed, and unknown keys, are left as they are. Queue().Requeue does it for all, or for a topic.
func (in *Inbox) Requeue(ctx context.Context, keys ...Key) (int, error) {
	entries, err := in.Get(ctx, keys...)
	if err != nil {
		return 0, err
	}
	var failed []outbox.MessageID
	for _, e := range entries {
		if e.Status == outbox.Failed {
			failed = append(failed, e.QueueID)
		}
	}
	if len(failed) == 0 {
		return 0, nil
	}
	return in.queue.Requeue(ctx, outbox.RequeueParams{IDs: failed})
}

// Purge deletes entries that have ended, by age, with their messages in the queue, in small batches, and returns how many: those
// that are done, or with Failed those that have failed. What is ready or in progress is never deleted. The age is that of the
// end, and of the last time the message came up.
//
// A message that comes again after its entry is deleted is new: keep entries for longer than a broker may deliver again.
// The janitor of a Subscriber, or of Queue, does this by itself, by JanitorConfig.Entries. Messages that a pending join or
// the log needs are spared.
func (in *Inbox) Purge(ctx context.Context, params outbox.PurgeParams) (total int, err error) {
	if params.OlderThan < 0 {
		return 0, badField("PurgeParams.OlderThan", "is negative")
	}
	status := outbox.Done
	if params.Failed {
		status = outbox.Failed
	}
	for {
		n := 0
		err := in.inside.Run(ctx, in.db, opPurge, struct {
			Status      outbox.Status `json:"status"`
			OlderThanMS int64         `json:"older_than_ms"`
			Limit       int           `json:"limit"`
		}{status, params.OlderThan.Milliseconds(), maxBatch}, func(rows *sql.Rows) error { return rows.Scan(&n) })
		if err != nil || n == 0 {
			return total, err
		}
		total += n
	}
}
