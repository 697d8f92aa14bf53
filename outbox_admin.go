package outbox

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/incursa/watermill-outbox/internal/engine"
	"github.com/incursa/watermill-outbox/internal/field"
	"github.com/incursa/watermill-outbox/internal/flow"
)

// ReapExpired makes every message ready again whose lease has expired, which spends an attempt, and returns how many. Each
// is due again after a random time up to Config.ExpiryBackoff. Subscribers do it by themselves.
func (o *Outbox) ReapExpired(ctx context.Context) (int, error) {
	arg := struct {
		Limit int     `json:"limit"`
		Waits []int64 `json:"waits"`
	}{maxBatch, expiryWaits(o.config.ExpiryBackoff)}
	total := 0
	for {
		var messages, leases int
		_, err := engine.Call(ctx, o.engine, o.db, opReap, arg, nil, func(rows *sql.Rows, _ *struct{}) error { return rows.Scan(&messages, &leases) })
		total += messages
		if err != nil || messages == 0 && leases == 0 {
			o.reaped(total)
			return total, err
		}
	}
}

func (o *Outbox) reaped(n int) {
	if n > 0 {
		o.logger.Info("Gave back messages whose leases had expired", watermill.LogFields{"count": n})
	}
	o.config.Hooks.reaped(ReapEvent{o.config.Store, n})
}

// ListParams select failed messages, or blocked streams, to list.
type ListParams struct {
	// Topic restricts the list to one topic. Defaults to all.
	Topic string

	// Limit is the most to return, 1 to 1,000. Defaults to 100.
	Limit int
}

// Failed lists dead letters, the most recently failed first. Requeue gives them another chance. It returns a *FieldError for
// bad parameters.
func (o *Outbox) Failed(ctx context.Context, params ListParams) ([]Record, error) {
	if err := setListLimit("ListParams.Limit", &params.Limit); err != nil {
		return nil, err
	}
	if err := field.Key("ListParams.Topic", params.Topic); err != nil {
		return nil, err
	}
	records, err := engine.Call(ctx, o.engine, o.db, opFailed, struct {
		topicFilter
		Limit int `json:"limit"`
	}{filterTopic(params.Topic), params.Limit}, nil, scanRecord)
	slices.SortFunc(records, func(a, b Record) int {
		return cmp.Or(b.ProcessedAt.Compare(a.ProcessedAt), cmp.Compare(b.Seq, a.Seq))
	})
	return records, err
}

// RequeueParams select failed messages. If both filters are set, both must match.
type RequeueParams struct {
	// IDs are the ids of the messages. An empty list that is not nil selects none. Defaults to nil: any id.
	IDs []MessageID

	// Topic restricts them to one topic. Defaults to all.
	Topic string

	// All selects every failed message. It is required if neither IDs nor Topic is set, and invalid otherwise.
	All bool

	// StartOver forgets the stages of the messages, so that middleware.Stages runs all of them again. Defaults to false: what
	// has succeeded is not repeated.
	StartOver bool
}

func (p *RequeueParams) validate() error {
	filtered := p.IDs != nil || p.Topic != ""
	switch {
	case p.All && filtered:
		return field.Bad("RequeueParams.All", "is set together with IDs or Topic; set one or the other")
	case !p.All && !filtered:
		return field.Bad("RequeueParams.All", "is false, and neither IDs nor Topic is set; set All to requeue everything that has failed")
	}
	return field.Key("RequeueParams.Topic", p.Topic)
}

// topicFilter is a topic on the wire; its zero value is all topics.
type topicFilter struct {
	Topic    string `json:"topic,omitempty"`
	TopicKey *int64 `json:"topic_key,omitempty"`
}

func filterTopic(topic string) topicFilter {
	if topic == "" {
		return topicFilter{}
	}
	key := topicKey(topic)
	return topicFilter{topic, &key}
}

type requeueArg struct {
	topicFilter
	IDs       []MessageID `json:"ids,omitempty"`
	Until     int64       `json:"until,omitempty"`
	After     int64       `json:"after,omitempty"` // when the last one of the batch before had failed
	Limit     int         `json:"limit"`
	StartOver bool        `json:"start_over,omitempty"`
}

// Requeue makes failed messages ready again, with a fresh retry budget, and returns how many. LastError stays. Messages that
// fail during the call are left alone, so one call never requeues a message twice. It returns a *FieldError for bad
// parameters.
func (o *Outbox) Requeue(ctx context.Context, params RequeueParams) (total int, err error) {
	if err := params.validate(); err != nil {
		return 0, err
	}
	arg := requeueArg{topicFilter: filterTopic(params.Topic), Limit: maxBatch, StartOver: params.StartOver}
	if params.IDs == nil {
		return o.requeue(ctx, &arg)
	}
	for ids := range slices.Chunk(params.IDs, maxBatch) {
		arg.IDs, arg.After = ids, 0
		n, err := o.requeue(ctx, &arg)
		total += n
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

// requeue works until no more are left, and records in arg when it began.
func (o *Outbox) requeue(ctx context.Context, arg *requeueArg) (total int, err error) {
	for {
		n, started := 0, time.Now()
		_, err := engine.Call(ctx, o.engine, o.db, opRequeue, arg, nil, func(rows *sql.Rows, _ *struct{}) error {
			return rows.Scan(&n, &arg.Until, &arg.After)
		})
		if err != nil || n == 0 {
			return total, err
		}
		total += n
		if err := o.giveWay(ctx, time.Since(started)); err != nil {
			return total, err
		}
	}
}

// PurgeParams select ended messages.
type PurgeParams struct {
	// OlderThan keeps messages that ended more recently. Defaults to 0: keep none.
	OlderThan time.Duration

	// Failed purges failed messages instead of those that are done. Defaults to false.
	Failed bool

	// Log purges the log instead, and messages that are only in the log. It never purges what a consumer group has not passed
	// yet: ForgetGroup removes a group that is no longer used. It excludes Failed. Defaults to false.
	Log bool
}

// Purge deletes ended messages by age, in small batches that claims and settlements do not wait for, and returns how many.
// It never deletes a live message. When ctx ends, it returns the number deleted so far and ctx's error. It returns a
// *FieldError for bad parameters.
func (o *Outbox) Purge(ctx context.Context, params PurgeParams) (int, error) {
	if params.OlderThan < 0 {
		return 0, field.Bad("PurgeParams.OlderThan", "is negative")
	}
	if params.Failed && params.Log {
		return 0, field.Bad("PurgeParams.Failed", "and Log exclude each other; purge one after the other")
	}
	op, status := opPurge, Done
	switch {
	case params.Failed:
		status = Failed
	case params.Log:
		op, status = opLogPurge, 0
	}
	return o.purge(ctx, op, &purgeArg{Status: status, OlderThanMS: params.OlderThan.Milliseconds()}, 0)
}

type purgeArg struct {
	Seqs        []WorkItemID `json:"seqs,omitempty"`
	Status      Status       `json:"status,omitempty"`
	OlderThanMS int64        `json:"older_than_ms"`
	Limit       int          `json:"limit"`

	// Where to begin: the messages and the log know the place, the others the age; within one purge of dead letters or entries it is
	// the time, by the database's clock and in its unit. 0 is the beginning.
	After    int64 `json:"after,omitempty"`
	WithinMS int64 `json:"within_ms,omitempty"`
}

// A purgeRow is the result of one batch of a purge: the number of rows deleted, how many of them were joins, and where the
// next batch begins, or 0 at the end.
type purgeRow struct {
	rows, joins int
	after       int64
}

func (r *purgeRow) scan(op operation, rows *sql.Rows) error {
	switch op {
	case opJoinPurge:
		return rows.Scan(&r.rows, &r.joins)
	case opLogPurge, opPurge:
		return rows.Scan(&r.rows, &r.after)
	case opEntryPurge: // a row for each
		r.rows = 1
		return rows.Scan(&r.after)
	default:
		return rows.Scan(&r.rows)
	}
}

// purge runs an operation that deletes until it finds no more, each batch within limit; 0 is no limit. arg then says where
// the last batch began, if the messages or the log know the place. By time, the next purge begins a little earlier: see walk.
func (o *Outbox) purge(ctx context.Context, op operation, arg *purgeArg, limit time.Duration) (total int, err error) {
	arg.Limit = maxBatch
	for {
		began, started := arg.After, time.Now()
		n, joins, err := o.purgeBatch(ctx, op, arg, limit)
		if op == opJoinPurge {
			total += joins
		} else {
			total += n
		}
		walks := op == opLogPurge || op == opPurge && arg.Status == Done // goes to the end, past what is kept
		if err != nil || walks && arg.After == 0 || !walks && n == 0 {
			arg.After = 0
			if walks {
				arg.After = began
			}
			return total, err
		}
		if err := o.giveWay(ctx, time.Since(started)); err != nil {
			return total, err
		}
	}
}

// giveWay pauses after a batch for as long as that took, where there is one writer at a time: others look for its end only now and then,
// and would wait for all batches.
func (o *Outbox) giveWay(ctx context.Context, took time.Duration) error {
	if o.engine.Dialect.Traits().Procedures {
		return nil
	}
	return flow.Pause(ctx, took)
}

func (o *Outbox) purgeBatch(ctx context.Context, op operation, arg *purgeArg, limit time.Duration) (rows, joins int, err error) {
	if limit > 0 {
		limited, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		ctx = limited
	}
	var gone []purgeRow
	_, err = o.batch(ctx, func(ctx context.Context, x Executor) (n int, err error) {
		gone, err = engine.Call(ctx, o.engine, x, op, arg, nil, func(rows *sql.Rows, r *purgeRow) error { return r.scan(op, rows) })
		for _, r := range gone {
			n += r.rows
		}
		return n, err
	})
	if err != nil {
		return 0, 0, err
	}
	arg.After = 0
	for _, r := range gone {
		rows, joins, arg.After = rows+r.rows, joins+r.joins, max(arg.After, r.after)
	}
	return rows, joins, err
}

// Topics lists the topics that have due messages, blocked streams or dead letters, and says which of them are paused.
func (o *Outbox) Topics(ctx context.Context) ([]TopicBacklog, error) {
	arg := struct {
		Limit int `json:"limit"`
	}{backlogCountCap}
	topics, err := engine.Call(ctx, o.engine, o.db, opTopics, arg, nil, func(rows *sql.Rows, t *TopicBacklog) error {
		t.Store = o.config.Store
		return t.scan(rows, &t.Failed)
	})
	if err != nil {
		return nil, err
	}
	streams, err := engine.Call(ctx, o.engine, o.db, opStreamTopics, arg, nil, func(rows *sql.Rows, t *TopicBacklog) error {
		t.Store = o.config.Store
		return t.scan(rows, &t.BlockedStreams)
	})
	if topics = mergeTopics(append(topics, streams...)); err != nil || len(topics) == 0 {
		return topics, err
	}
	return topics, o.markPaused(ctx, topics)
}

// mergeTopics adds up the counts of each topic: messages outside streams, messages in them, dead letters.
func mergeTopics(parts []TopicBacklog) (topics []TopicBacklog) {
	at := make(map[string]int, len(parts))
	for _, p := range parts {
		i, known := at[p.Topic]
		if !known {
			at[p.Topic] = len(topics)
			topics = append(topics, p)
			continue
		}
		t := &topics[i]
		if p.Waiting > 0 && (t.Waiting == 0 || p.Age > t.Age) {
			t.Oldest, t.Age = p.Oldest, p.Age
		}
		t.Waiting = min(t.Waiting+p.Waiting, backlogCountCap)
		t.BlockedStreams += p.BlockedStreams
		t.Failed += p.Failed
	}
	return topics
}

// markPaused notes which of the topics are paused.
func (o *Outbox) markPaused(ctx context.Context, topics []TopicBacklog) error {
	paused, err := engine.Call(ctx, o.engine, o.db, opTopicPaused, struct{}{}, nil, func(rows *sql.Rows, p *TopicBacklog) error {
		var since int64
		err := rows.Scan(&p.Topic, &since, &p.PausedBy, &p.PauseReason)
		p.PausedSince = time.UnixMilli(since).UTC()
		return err
	})
	for _, p := range paused {
		for i := range topics {
			if t := &topics[i]; t.Topic == p.Topic {
				t.PausedSince, t.PausedBy, t.PauseReason = p.PausedSince, p.PausedBy, p.PauseReason
			}
		}
	}
	return err
}

func (t *TopicBacklog) scan(rows *sql.Rows, more ...any) error {
	var oldest, age int64
	err := rows.Scan(append([]any{&t.Topic, &t.Waiting, &oldest, &age}, more...)...)
	t.Oldest, t.Age = time.UnixMilli(oldest).UTC(), time.Duration(age)*time.Millisecond
	return err
}

// Get reads messages by id. Unknown ids are left out; the order is that of Seq.
func (o *Outbox) Get(ctx context.Context, ids ...MessageID) ([]Record, error) {
	var records []Record
	for len(ids) > 0 {
		n := min(len(ids), maxBatch)
		batch, err := engine.Call(ctx, o.engine, o.db, opGet, struct {
			IDs []MessageID `json:"ids"`
		}{ids[:n]}, nil, scanRecord)
		if err != nil {
			return nil, err
		}
		records = append(records, batch...)
		ids = ids[n:]
	}
	sortRecords(records)
	return records, nil
}
