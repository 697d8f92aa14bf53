package outbox

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/incursa/watermill-outbox/internal/base"
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

	// MaxBytes is the most bytes of payloads and headers that one Read returns; a larger message comes alone. Defaults to
	// 64 MB.
	MaxBytes int64
}

// defaultReadBytes is CursorConfig.MaxBytes.
const defaultReadBytes = 64 << 20

// A Cursor is one reader's hold on a consumer group's place in the log: it reads messages in order, and while it has the
// group's lease it alone moves the place on. Nothing of it goes by the number that a message got when it was inserted, which
// commits out of order; see Sequencer.
//
// What is done in the transaction in which Advance moves the place is done once for each message, whatever dies and whoever
// takes over. A Cursor is for one goroutine, except for Renew, which may be called beside the others.
type Cursor struct {
	outbox *Outbox
	config CursorConfig
	owner  OwnerToken

	version, shape int64 // see seam.Reading

	read map[int64]MessageID // what the last Read returned, and what it came after
}

// A LogMessage is a message of the log with its position.
type LogMessage struct {
	Message
	Position int64

	// CreatedAt is when it was enqueued, by the database's clock.
	CreatedAt time.Time

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
	setDefault(&config.MaxBytes, defaultReadBytes)
	if config.Group == "" {
		return nil, badField("CursorConfig.Group", "is empty; name the consumer group")
	}
	if err := validateKey("CursorConfig.Group", config.Group); err != nil {
		return nil, err
	}
	if err := validateKey("CursorConfig.Topic", config.Topic); err != nil {
		return nil, err
	}
	if config.MaxBytes < 1 {
		return nil, badField("CursorConfig.MaxBytes", "%d is less than 1", config.MaxBytes)
	}
	if err := validateLease("CursorConfig.Lease", config.Lease); err != nil {
		return nil, err
	}
	return o.cursor(config), nil
}

func (o *Outbox) cursor(config CursorConfig) *Cursor {
	return &Cursor{outbox: o, config: config, owner: NewOwnerToken()}
}

// Acquire takes the lease, or extends it if it is this reader's, and returns the group's position: that of the last message
// that it has passed. A group begins with 0, and from then on what is purged from the log waits for it. While another has
// the lease it returns ErrLeaseHeld.
func (c *Cursor) Acquire(ctx context.Context) (position int64, err error) {
	s, err := c.acquire(ctx)
	return s.position, err
}

func (c *Cursor) acquire(ctx context.Context) (groupState, error) {
	c.read = nil // the position is the database's, whatever was read
	return c.move(ctx, c.outbox.db, leaseArg{LeaseMS: c.config.Lease.Milliseconds(), Take: true})
}

// Renew extends the lease. Unlike Acquire it does not take it again if another has had it in between: it returns
// ErrLeaseLost.
func (c *Cursor) Renew(ctx context.Context) error { return c.Advance(ctx, c.outbox.db, 0, 0) }

// Advance moves the group on from the position where the reader knows it to be, that of the last Acquire or of the last
// Advance that was committed, to another, but never back, and extends the lease. It runs in the caller's transaction if x is
// one, and locks the group's row until that ends: nobody can take the lease in between.
//
// If another has had the lease it returns ErrLeaseLost. A *LogWentBackError says that the database has come back older
// than this reader; Acquire then tells from where to go on. In both cases the group has not moved; roll the transaction back.
//
// An expired lease that nobody took is still held. After an error of the commit ask Acquire how far the group has come.
func (c *Cursor) Advance(ctx context.Context, x Executor, from, to int64) error {
	_, err := c.move(ctx, x, leaseArg{From: from, Position: to, LeaseMS: c.config.Lease.Milliseconds()})
	return err
}

// Release gives the lease back, so that another need not wait for its end. If it is not held any more, nothing happens.
func (c *Cursor) Release(ctx context.Context) error {
	_, err := c.move(ctx, c.outbox.db, leaseArg{})
	return err
}

type leaseArg struct {
	Group    string     `json:"group"`
	Topic    string     `json:"topic"`
	Owner    OwnerToken `json:"owner"`
	From     int64      `json:"from"`
	Position int64      `json:"position"`
	Message  string     `json:"message"` // at Position, where it is known
	Tried    int64      `json:"tried"`   // a position, and the attempts that were spent on it, if not 0
	Attempts int        `json:"attempts"`
	LeaseMS  int64      `json:"lease_ms"`
	Take     bool       `json:"take"`
	Version  int64      `json:"version"`
	Shape    int64      `json:"shape"`
}

// A groupState is how a group stands in the database.
type groupState struct {
	held     bool
	position int64
	last     int64 // the last position that was given
	tried    int64
	attempts int

	version, shape int64 // of who has the lease, or had it last

	interrupted bool // whoever had it before did not give it back
}

// move returns how the group stands, and an error if the lease is not this reader's or the group could not be moved.
func (c *Cursor) move(ctx context.Context, x Executor, arg leaseArg) (groupState, error) {
	if isNil(x) {
		return groupState{}, ErrNilDB
	}
	arg.Group, arg.Topic, arg.Owner, arg.Version, arg.Shape = c.config.Group, c.config.Topic, c.owner, c.version, c.shape
	if arg.Position > 0 {
		if id, known := c.read[arg.Position]; known {
			arg.Message = id.String()
		}
	}
	states, err := call(ctx, c.outbox.engine, x, opLogLease, arg, nil, func(rows *sql.Rows, s *groupState) error {
		return rows.Scan(&s.held, &s.position, &s.last, &s.tried, &s.attempts, &s.version, &s.shape, &s.interrupted)
	})
	if err != nil {
		return groupState{}, err
	}
	s := groupState{version: c.version, shape: c.shape}
	if len(states) > 0 {
		s = states[0]
	}
	switch believed := max(arg.From, arg.Position); {
	case arg.LeaseMS == 0:
		return s, nil
	case !s.held && arg.Take:
		return s, &base.LeaseHeldError{Version: s.version, Shape: s.shape, Err: ErrLeaseHeld}
	case !s.held:
		return s, ErrLeaseLost
	case s.position < believed:
		return s, c.wentBack(believed, s.position, s.last)
	default:
		return s, nil
	}
}

func (c *Cursor) wentBack(believed, position, last int64) error {
	return &LogWentBackError{Group: c.config.Group, Topic: c.config.Topic, Reader: believed, Position: position, Last: last}
}

// Read returns up to limit messages, 1 to 1,000, that come after a position, in order, as far as CursorConfig.MaxBytes
// allows. It needs no lease. If the log ends before that position, or has another message there than this Cursor has
// read, the database has come back older than the reader: it returns a *LogWentBackError.
func (c *Cursor) Read(ctx context.Context, after int64, limit int) ([]LogMessage, error) {
	if limit < 1 || limit > maxBatch {
		return nil, badField("limit", "%d is not between 1 and %d", limit, maxBatch)
	}
	arg := struct {
		Topic   string `json:"topic"`
		After   int64  `json:"after"`
		Message string `json:"message"`
		Limit   int    `json:"limit"`
		Bytes   int64  `json:"bytes"`
	}{Topic: c.config.Topic, After: after, Limit: limit, Bytes: c.config.MaxBytes}
	id, known := c.read[after]
	if known {
		arg.Message = id.String()
	}
	messages, err := call(ctx, c.outbox.engine, c.outbox.db, opLogRead, arg, nil, func(rows *sql.Rows, l *LogMessage) error { return l.scan(rows) })
	if err != nil {
		return nil, err
	}
	slices.SortFunc(messages, func(a, b LogMessage) int { return cmp.Compare(a.Position, b.Position) })
	if len(messages) > 0 && messages[0].ID == (MessageID{}) { // no message: the log went back
		return nil, c.wentBack(after, 0, messages[0].Position)
	}
	read := make(map[int64]MessageID, len(messages)+1)
	if known {
		read[after] = id
	}
	for i := range messages {
		read[messages[i].Position] = messages[i].ID
	}
	c.read = read
	return messages, nil
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
	if columns.id == "" {
		return nil
	}
	l.CreatedAt = time.UnixMilli(columns.created).UTC()
	l.LoggedAt, l.Age = time.UnixMilli(logged).UTC(), time.Duration(age)*time.Millisecond
	l.Malformed = columns.fill(&l.Message)
	return nil
}
