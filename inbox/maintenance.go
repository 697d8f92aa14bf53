package inbox

import (
	"context"
	"database/sql"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/field"
)

// Requeue makes failed messages with these keys ready again, with all their attempts, and returns how many. Entries that have
// not failed, and unknown keys, are left alone. Queue().Requeue does the same for all messages, or for a topic.
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

// Purge deletes entries that ended longer ago than the given age, together with their messages in the queue, in small
// batches, and returns how many: entries that are done or, with Failed, those that have failed. Messages that are ready or
// in progress are never deleted. The age counts from the end, or from the last time the message arrived if that was later.
// When ctx ends, it returns what it has deleted so far and ctx's error. It returns an *outbox.FieldError for bad parameters.
//
// A message that arrives after its entry was deleted counts as new: keep entries for longer than a broker may redeliver. The
// janitor of a Subscriber, or of Queue, purges by itself, after JanitorConfig.Entries. Messages that a pending join or the
// log needs are kept.
func (in *Inbox) Purge(ctx context.Context, params outbox.PurgeParams) (total int, err error) {
	if params.OlderThan < 0 {
		return 0, field.Bad("PurgeParams.OlderThan", "is negative")
	}
	if params.Log {
		return 0, field.Bad("PurgeParams.Log", "is not for entries; purge the log of Inbox.Queue")
	}
	status := outbox.Done
	if params.Failed {
		status = outbox.Failed
	}
	arg := struct {
		Status      outbox.Status `json:"status"`
		OlderThanMS int64         `json:"older_than_ms"`
		Limit       int           `json:"limit"`
		After       int64         `json:"after,omitempty"` // when the last one of the batch before was last seen
	}{Status: status, OlderThanMS: params.OlderThan.Milliseconds(), Limit: maxBatch}
	for {
		n, after := 0, arg.After
		var answer *sql.Rows
		err := in.inside.Run(ctx, in.db, opPurge, arg, func(rows *sql.Rows) error {
			if rows != answer { // it is run again after a lost conflict
				n, after, answer = 0, arg.After, rows
			}
			var seen int64
			err := rows.Scan(&seen)
			n, after = n+1, max(after, seen)
			return err
		})
		arg.After = after
		if err != nil || n == 0 {
			return total, err
		}
		total += n
	}
}
