package outbox

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"time"
)

// AllTopics is the topic of a Cursor that reads the whole log.
const AllTopics = ""

// CursorConfig names a place in the log.
type CursorConfig struct {
	// Group is the consumer group whose place it is. Required.
	Group string

	// Topic is the topic to read. Defaults to AllTopics; a group's place in the whole log is another than its place in a
	// topic.
	Topic string

	// Lease is how long the group waits for this reader when its process dies. Defaults to 30 s.
	Lease time.Duration
}

// A Cursor is one reader's hold on a consumer group's place in the log: it reads messages in order, and while it has the
// group's lease it alone moves the place on. Nothing of it goes by the number that a message got when it was inserted, which
// commits out of order; see Sequencer.
//
// What is done in the transaction in which Advance moves the place is done once for each message, whatever dies and whoever
// takes over. A Cursor is for one goroutine, except for Renew, which may be called beside the others.
type Cursor struct {
	outbox       *Outbox
	group, topic string
	owner        OwnerToken
	lease        time.Duration
}

// A LogMessage is a message of the log with its position.
type LogMessage struct {
	Message
	Position int64

	// LoggedAt is when it got its position, by the database's clock, and Age how long ago that was when it was read. Times of
	// later positions may be earlier, if the clock was set back.
	LoggedAt time.Time
	Age      time.Duration

	// Malformed says why the row's headers could not be read, after a change from outside; Headers are then empty.
	Malformed error
}

// Cursor returns a reader of the log with an owner token of its own. It does not touch the database.
func (o *Outbox) Cursor(config CursorConfig) (*Cursor, error) {
	setDefault(&config.Lease, 30*time.Second)
	if config.Group == "" {
		return nil, badField("CursorConfig.Group", "is empty; name the consumer group")
	}
	if err := validateKey("CursorConfig.Group", config.Group); err != nil {
		return nil, err
	}
	if err := validateKey("CursorConfig.Topic", config.Topic); err != nil {
		return nil, err
	}
	if err := validateLease("CursorConfig.Lease", config.Lease); err != nil {
		return nil, err
	}
	return o.cursor(config.Group, config.Topic, config.Lease), nil
}

func (o *Outbox) cursor(group, topic string, lease time.Duration) *Cursor {
	return &Cursor{outbox: o, group: group, topic: topic, owner: NewOwnerToken(), lease: lease}
}

// Acquire takes the lease, or extends it if it is this reader's, and returns the group's position: that of the last message
// that it has passed. A group begins with 0, and from then on what is purged from the log waits for it. It returns
// ErrLeaseHeld while another has the lease.
func (c *Cursor) Acquire(ctx context.Context) (position int64, err error) {
	return c.move(ctx, c.outbox.db, leaseArg{LeaseMS: c.lease.Milliseconds(), Take: true}, ErrLeaseHeld)
}

// Renew extends the lease. Unlike Acquire it does not take it again if another has had it in between: it returns
// ErrLeaseLost.
func (c *Cursor) Renew(ctx context.Context) error { return c.Advance(ctx, c.outbox.db, 0) }

// Advance moves the group on to a position, but never back, and extends the lease. It runs in the caller's transaction if x
// is one, and locks the group's row until that ends: nobody can take the lease in between. If another has had the lease it
// returns ErrLeaseLost, and has changed nothing; roll the transaction back.
//
// An expired lease that nobody took is still held. After an error of the commit ask Acquire how far the group has come.
func (c *Cursor) Advance(ctx context.Context, x Executor, position int64) error {
	_, err := c.move(ctx, x, leaseArg{Position: position, LeaseMS: c.lease.Milliseconds()}, ErrLeaseLost)
	return err
}

// Release gives the lease back, so that another need not wait for its end. If it is not held any more, nothing happens.
func (c *Cursor) Release(ctx context.Context) error {
	_, err := c.move(ctx, c.outbox.db, leaseArg{}, nil)
	return err
}

type leaseArg struct {
	Group    string     `json:"group"`
	Topic    string     `json:"topic"`
	Owner    OwnerToken `json:"owner"`
	Position int64      `json:"position"`
	LeaseMS  int64      `json:"lease_ms"`
	Take     bool       `json:"take"`
}

// move answers with the group's position, and with the error refused if the lease is not this reader's.
func (c *Cursor) move(ctx context.Context, x Executor, arg leaseArg, refused error) (int64, error) {
	if isNil(x) {
		return 0, ErrNilDB
	}
	arg.Group, arg.Topic, arg.Owner = c.group, c.topic, c.owner
	positions, err := call(ctx, c.outbox.engine, x, opLogLease, arg, nil, func(rows *sql.Rows, p *int64) error { return rows.Scan(p) })
	if err != nil {
		return 0, err
	}
	if len(positions) == 0 {
		return 0, refused
	}
	return positions[0], nil
}

// Read returns up to limit messages, 1 to 1,000, that come after a position, in order. It needs no lease.
func (c *Cursor) Read(ctx context.Context, after int64, limit int) ([]LogMessage, error) {
	if limit < 1 || limit > maxBatch {
		return nil, badField("limit", "%d is not between 1 and %d", limit, maxBatch)
	}
	messages, err := call(ctx, c.outbox.engine, c.outbox.db, opLogRead, struct {
		Topic string `json:"topic"`
		After int64  `json:"after"`
		Limit int    `json:"limit"`
	}{c.topic, after, limit}, nil, func(rows *sql.Rows, l *LogMessage) error { return l.scan(rows) })
	slices.SortFunc(messages, func(a, b LogMessage) int { return cmp.Compare(a.Position, b.Position) })
	return messages, err
}

func (l *LogMessage) scan(rows *sql.Rows) error {
	var columns messageColumns
	var position WorkItemID
	var retryCount int
	var logged, age int64
	if err := rows.Scan(append(columns.destinations(&l.Message, &position, &retryCount), &logged, &age)...); err != nil {
		return err
	}
	l.Position = int64(position)
	l.LoggedAt, l.Age = time.UnixMilli(logged).UTC(), time.Duration(age)*time.Millisecond
	l.Malformed = columns.fill(&l.Message)
	return nil
}
