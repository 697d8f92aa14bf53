package outbox

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/incursa/watermill-outbox/internal/base"
)

// Results are scanned by position: the files of all dialects return the same columns.

// messageColumns are the first columns of outbox_claim and outbox_get.
type messageColumns struct {
	id                           string
	headers, correlation, stream sql.NullString
	created                      int64
	due                          sql.NullInt64
	stages                       sql.NullInt32 // after the others
	claimed                      int64         // of outbox_claim alone
}

func (c *messageColumns) destinations(m *Message, seq *WorkItemID, retryCount *int, more ...any) []any {
	return slices.Concat([]any{seq, &c.id, &m.UUID, &m.Topic, &m.Payload, &c.headers, &c.correlation, &c.stream, &c.created, &c.due, retryCount}, more)
}

func (c *messageColumns) fill(m *Message) (err error) {
	if m.ID, err = base.ParseMessageID(c.id); err != nil {
		return err
	}
	m.CorrelationID, m.StreamKey = c.correlation.String, c.stream.String
	m.DueAt = fromMillis(c.due)
	if m.Headers, err = decodeHeaders(c.headers.String); err != nil {
		return err
	}
	m.ExpiresAt, err = expiry(m.Headers)
	return err
}

// A claimScanner reads the rows of outbox_claim, after those columns that newClaimScanner is given. One serves for all rows of a
// result, because what they are scanned into is on the heap.
type claimScanner struct {
	claimed Claimed
	columns messageColumns
	into    []any
}

func newClaimScanner(before ...any) *claimScanner {
	s := new(claimScanner)
	c := &s.claimed
	s.into = append(before, s.columns.destinations(&c.Message, &c.Receipt.Seq, &c.RetryCount, &s.columns.stages, &s.columns.claimed)...)
	return s
}

func (s *claimScanner) scan(rows *sql.Rows) error {
	s.claimed = Claimed{}
	return rows.Scan(s.into...)
}

// message returns a copy of the message of the last row.
func (s *claimScanner) message() *Claimed {
	c := s.claimed
	c.fill(&s.columns)
	return &c
}

func (c *Claimed) fill(columns *messageColumns) {
	c.CreatedAt, c.Stages = time.UnixMilli(columns.created).UTC(), toStages(columns.stages)
	c.ClaimedAt = time.UnixMilli(columns.claimed).UTC()
	c.size = int64(len(c.Payload) + len(columns.headers.String))
	c.Malformed = columns.fill(&c.Message) // one bad row must not hold up the others
}

func scanRecord(rows *sql.Rows, r *Record) error {
	var columns messageColumns
	var owner, lastError, processedBy sql.NullString
	var nextAttempt int64
	var lockedUntil, processed sql.NullInt64
	if err := rows.Scan(append(columns.destinations(&r.Message, &r.Seq, &r.RetryCount), &r.Status, &nextAttempt, &lockedUntil,
		&owner, &lastError, &processed, &processedBy, &columns.stages)...); err != nil {
		return err
	}
	if owner.Valid {
		if err := r.Owner.UnmarshalText([]byte(owner.String)); err != nil {
			return err
		}
	}
	r.CreatedAt, r.NextAttemptAt = time.UnixMilli(columns.created).UTC(), time.UnixMilli(nextAttempt).UTC()
	r.LockedUntil, r.ProcessedAt = fromMillis(lockedUntil), fromMillis(processed)
	r.LastError, r.ProcessedBy, r.Stages = lastError.String, processedBy.String, toStages(columns.stages)
	r.Malformed = columns.fill(&r.Message)
	return nil
}

// toStages reads a row's stages. A message that has a row is stored.
func toStages(bits sql.NullInt32) base.Stages {
	return base.StageStored | base.Stages(bits.Int32) //nolint:gosec // the bits matter, not the number
}

// An unrenewed is a receipt whose lease was not extended: it was refused, or it is held and a transaction has locked its row.
type unrenewed struct {
	receipt Receipt
	held    bool
}

func (u *unrenewed) scan(rows *sql.Rows) error {
	var owner string
	if err := rows.Scan(&u.receipt.Seq, &owner, &u.held); err != nil {
		return err
	}
	return u.receipt.Owner.UnmarshalText([]byte(owner))
}

// scanCount reads how many rows an operation touched.
func scanCount(rows *sql.Rows, n *int) error { return rows.Scan(n) }

func workItems(receipts []Receipt, err error) ([]WorkItemID, error) {
	var ids []WorkItemID
	for _, r := range receipts {
		ids = append(ids, r.Seq)
	}
	return ids, err
}

func fromMillis(ms sql.NullInt64) time.Time {
	if !ms.Valid {
		return time.Time{}
	}
	return time.UnixMilli(ms.Int64).UTC()
}

// sortBySeq is needed because databases return rows in any order.
func sortBySeq(claimed []*Claimed) {
	slices.SortFunc(claimed, func(a, b *Claimed) int { return cmp.Compare(a.Receipt.Seq, b.Receipt.Seq) })
}

func sortRecords(records []Record) {
	slices.SortFunc(records, func(a, b Record) int { return cmp.Compare(a.Seq, b.Seq) })
}

// took interprets the rows that a claim returned, and reports them.
func (o *Outbox) took(ctx context.Context, params ClaimParams, claimed []*Claimed, started time.Time, err error) ([]*Claimed, error) {
	sortBySeq(claimed)
	if len(claimed) > 0 && claimed[0].Receipt.Seq == 0 { // not a message: the number of messages that were given back
		o.reaped(claimed[0].RetryCount)
		claimed = claimed[1:]
	}
	if err == nil {
		claimed = o.withoutStrangers(ctx, claimed, params.Topics)
	}
	o.config.Hooks.claimed(o.config.Store, claimed, time.Since(started), err)
	if err != nil {
		return nil, err
	}
	if len(claimed) > 0 {
		o.logger.Debug("Claimed messages", watermill.LogFields{"count": len(claimed), "owner": params.Owner.String()})
	}
	return claimed, nil
}

// strangerDelay is how long a message waits after it was claimed for another topic with the same key.
const strangerDelay = time.Minute

// withoutStrangers gives back messages of topics that were not asked for: they have the same key as one that was.
func (o *Outbox) withoutStrangers(ctx context.Context, claimed []*Claimed, topics []TopicQuota) []*Claimed {
	var back []Settlement
	known := "" // the topic of the message before: most have the same
	asked := slices.DeleteFunc(claimed, func(c *Claimed) bool {
		if c.Topic == known || slices.ContainsFunc(topics, func(t TopicQuota) bool { return t.Topic == c.Topic }) {
			known = c.Topic
			return false
		}
		back = append(back, Settlement{Receipt: c.Receipt, Outcome: Release, Delay: strangerDelay})
		return true
	})
	if len(back) == 0 {
		return asked
	}
	_, err := o.settle(ctx, o.db, back) // if it fails, their leases expire
	o.logger.Error("A topic has the same key as another, and its messages wait for a minute each time they are claimed for that one; rename one of the two",
		err, watermill.LogFields{"count": len(back)})
	return asked
}

// settled are the receipts that were not settled, because they were no longer held or others have locked their rows. gone
// are the messages whose states may have been deleted.
type settled struct {
	refused, busy []Receipt
	gone          []WorkItemID
}

// readSettled interprets the rows that settling returned, and reports the joins that it ended.
func (o *Outbox) readSettled(x Executor, settlements []Settlement, rows []countRow) (result settled, err error) {
	if o.config.DeleteOnAck {
		for _, s := range settlements {
			if s.Outcome == Ack {
				result.gone = append(result.gone, s.Receipt.Seq)
			}
		}
	}
	if len(rows) == 0 {
		return result, nil
	}
	for _, r := range rows {
		if r.seq == 0 {
			continue
		}
		receipt := Receipt{Seq: WorkItemID(r.seq)}
		if err := receipt.Owner.UnmarshalText([]byte(r.id)); err != nil {
			return settled{}, err
		}
		if r.status.Int64 == receiptBusy {
			result.busy = append(result.busy, receipt)
		} else {
			result.refused = append(result.refused, receipt)
		}
	}
	return result, o.joinsEnded(x, rows)
}
