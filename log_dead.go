package outbox

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/incursa/watermill-outbox/internal/engine"
	"github.com/incursa/watermill-outbox/internal/field"
	"github.com/incursa/watermill-outbox/internal/limits"
)

// A GroupDeadLetter is a message that a consumer group could not handle and has passed. Purging the log keeps it.
type GroupDeadLetter struct {
	Message
	Group     string
	Position  int64 // in the log
	CreatedAt time.Time
	Attempts  int
	Reason    string // the last error
	FailedAt  time.Time
	Requeued  bool  // it will be delivered to the group again
	Malformed error // as in LogMessage
}

// GroupDeadLetterParams select dead letters of consumer groups. All filters that are set must match.
type GroupDeadLetterParams struct {
	// Group is the consumer group. Required, except for listing, where none means all.
	Group string

	// Topic restricts them to one topic. Defaults to all.
	Topic string

	// After restricts the list to what comes after this position in the log. Defaults to the beginning. Only for listing.
	After int64

	// Limit is the most to list, 1 to 1,000. Defaults to 100. Without a Group, a page may be longer: it never splits the dead
	// letters of one position. Only for listing.
	Limit int

	// Positions are those of the messages to requeue or discard. An empty list is none. Not for listing.
	Positions []int64

	// All selects every dead letter of the group and Topic, instead of Positions. Not for listing.
	All bool
}

// GroupDeadLetters lists the messages that consumer groups have given up, in the order of the log. It returns a *FieldError
// for bad parameters.
func (o *Outbox) GroupDeadLetters(ctx context.Context, params GroupDeadLetterParams) ([]GroupDeadLetter, error) {
	if err := params.validate(); err != nil {
		return nil, err
	}
	if err := setListLimit("GroupDeadLetterParams.Limit", &params.Limit); err != nil {
		return nil, err
	}
	if len(params.Positions) > 0 || params.All {
		return nil, field.Bad("GroupDeadLetterParams.Positions", "and All are not for listing; use After and Limit")
	}
	letters, err := o.listDead(ctx, deadArg{Group: params.Group, Topic: params.Topic, After: params.After, Limit: params.Limit})
	if err != nil || params.Group != "" || len(letters) < params.Limit {
		return letters, err
	}
	// Several groups may have given up the last message, and the next page begins after its position.
	last := letters[len(letters)-1].Position
	from, err := o.listDead(ctx, deadArg{Topic: params.Topic, After: last - 1, Limit: maxBatch})
	letters = slices.DeleteFunc(letters, func(d GroupDeadLetter) bool { return d.Position == last })
	return append(letters, slices.DeleteFunc(from, func(d GroupDeadLetter) bool { return d.Position != last })...), err
}

// RequeueGroupDeadLetters has dead letters delivered to a consumer group again, within seconds and with a fresh retry
// budget, and returns how many. They are out of order: they come before the next message of the log. It returns a
// *FieldError for bad parameters.
func (o *Outbox) RequeueGroupDeadLetters(ctx context.Context, params GroupDeadLetterParams) (int, error) {
	return o.changeAllDead(ctx, opLogDeadRequeue, params)
}

// DiscardGroupDeadLetters forgets dead letters of a consumer group, and returns how many. Their messages are then purged
// with the rest of the log. It returns a *FieldError for bad parameters.
func (o *Outbox) DiscardGroupDeadLetters(ctx context.Context, params GroupDeadLetterParams) (int, error) {
	return o.changeAllDead(ctx, opLogDeadDiscard, params)
}

func (p *GroupDeadLetterParams) validate() error {
	if err := field.Key("GroupDeadLetterParams.Group", p.Group); err != nil {
		return err
	}
	return field.Key("GroupDeadLetterParams.Topic", p.Topic)
}

type deadArg struct {
	Group     string  `json:"group,omitempty"`
	Topic     string  `json:"topic,omitempty"`
	After     int64   `json:"after"`
	Requeued  bool    `json:"requeued"`
	Positions []int64 `json:"positions,omitempty"`
	Limit     int     `json:"limit"`
}

func (o *Outbox) changeAllDead(ctx context.Context, op operation, params GroupDeadLetterParams) (total int, err error) {
	if err := params.validate(); err != nil {
		return 0, err
	}
	switch {
	case params.Group == "":
		return 0, field.Bad("GroupDeadLetterParams.Group", "is empty; name the consumer group")
	case params.After != 0 || params.Limit != 0:
		return 0, field.Bad("GroupDeadLetterParams.Limit", "and After are for listing; choose by Positions, or All")
	case params.All && len(params.Positions) > 0:
		return 0, field.Bad("GroupDeadLetterParams.All", "and Positions are both set; set one of them")
	case params.All:
		return o.changeDeadInBatches(ctx, op, deadArg{Group: params.Group, Topic: params.Topic})
	}
	for batch := range slices.Chunk(params.Positions, maxBatch) {
		n, err := o.changeDeadInBatches(ctx, op, deadArg{Group: params.Group, Topic: params.Topic, Positions: batch})
		total += n
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

// changeDeadInBatches goes through the log once: messages that fail again meanwhile are left alone.
func (o *Outbox) changeDeadInBatches(ctx context.Context, op operation, arg deadArg) (total int, err error) {
	for arg.Limit = maxBatch; ; {
		var last int64
		n, err := o.batch(ctx, func(ctx context.Context, x Executor) (n int, err error) {
			n, last, err = o.changeDead(ctx, x, op, arg)
			return n, err
		})
		total += n
		if err != nil || n == 0 {
			return total, err
		}
		arg.After = last
	}
}

func (o *Outbox) changeDead(ctx context.Context, x Executor, op operation, arg deadArg) (n int, last int64, err error) {
	type change struct {
		n    int
		last int64
	}
	changes, err := engine.Call(ctx, o.engine, x, op, arg, nil, func(rows *sql.Rows, c *change) error { return rows.Scan(&c.n, &c.last) })
	for _, c := range changes {
		n, last = n+c.n, max(last, c.last)
	}
	return n, last, err
}

func (o *Outbox) listDead(ctx context.Context, arg deadArg) ([]GroupDeadLetter, error) {
	letters, err := engine.Call(ctx, o.engine, o.db, opLogDeadList, arg, nil, func(rows *sql.Rows, d *GroupDeadLetter) error { return d.scan(rows) })
	slices.SortFunc(letters, func(a, b GroupDeadLetter) int {
		return cmp.Or(cmp.Compare(a.Position, b.Position), cmp.Compare(a.Group, b.Group))
	})
	return letters, err
}

func (d *GroupDeadLetter) scan(rows *sql.Rows) error {
	var columns messageColumns
	var position WorkItemID
	var retryCount int
	var reason sql.NullString
	var failed int64
	if err := rows.Scan(append(columns.destinations(&d.Message, &position, &retryCount),
		&d.Group, &d.Attempts, &reason, &failed, &d.Requeued)...); err != nil {
		return err
	}
	d.Position, d.Reason = int64(position), reason.String
	d.CreatedAt, d.FailedAt = time.UnixMilli(columns.created).UTC(), time.UnixMilli(failed).UTC()
	d.Malformed = columns.fill(&d.Message)
	return nil
}

// redeliver delivers the group's requeued dead letters, if it is time to look for them, and reports whether there were any.
func (r *logReader) redeliver(work, reading context.Context, out chan<- *message.Message) (found bool, err error) {
	if time.Since(r.looked) < lookEvery {
		return false, nil
	}
	for reading.Err() == nil {
		letter, err := r.requeued(reading)
		if err != nil || letter == nil {
			r.looked = time.Now()
			return found, err
		}
		found = true
		if err := r.deliver(work, letter, true, reading.Done(), out); err != nil {
			return found, err
		}
	}
	return found, nil
}

// requeued returns the group's first requeued dead letter, or nil if there is none.
func (r *logReader) requeued(ctx context.Context) (*LogMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, limits.Reading(r.config.LeaseDuration))
	defer cancel()
	letters, err := r.cursor.outbox.listDead(ctx, deadArg{Group: r.cursor.config.Group, Topic: r.cursor.config.Topic, Requeued: true, Limit: 1})
	if err != nil || len(letters) == 0 {
		return nil, err
	}
	d := &letters[0]
	return &LogMessage{Message: d.Message, Position: d.Position, CreatedAt: d.CreatedAt, Malformed: d.Malformed}, nil
}

// redeemed removes a message that the group has now handled from its dead letters.
func (r *logReader) redeemed(ctx context.Context, l *LogMessage) error {
	ctx, cancel := context.WithTimeout(ctx, limits.Settling(r.config.LeaseDuration))
	defer cancel()
	_, err := r.place(l, true).discard(ctx, r.cursor.outbox.db)
	return err
}

// giveUp adds a message to the group's dead letters, and moves the group on.
func (r *logReader) giveUp(ctx context.Context, l *LogMessage, again bool) error {
	ctx, cancel := context.WithTimeout(ctx, limits.Settling(r.config.LeaseDuration))
	defer cancel()
	reason, attempts, at := r.trial.reason, r.trial.attempts, time.Now()
	if reason == nil {
		reason = errReaderDied
	}
	p := r.place(l, again)
	err := r.cursor.outbox.inTx(ctx, r.cursor.outbox.db, func(ctx context.Context, x Executor) error {
		return p.giveUp(ctx, x, attempts, reason)
	})
	if err != nil {
		return err
	}
	if !again {
		r.acked, r.written = l.Position, l.Position
	}
	r.leased, r.trial = at, trial{written: true}
	r.logger.Error("A consumer group gave up a message, which is now among its dead letters", reason, watermill.LogFields{
		"message_id": l.ID.String(), "message_uuid": l.UUID, "position": l.Position, "attempts": attempts})
	return nil
}

func (r *logReader) place(l *LogMessage, again bool) *place {
	return &place{cursor: r.cursor, from: r.written, position: l.Position, message: l.ID, again: again}
}
