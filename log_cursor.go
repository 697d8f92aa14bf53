package outbox

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/engine"
	"github.com/incursa/watermill-outbox/internal/field"
	"github.com/incursa/watermill-outbox/internal/seam"
)

// defaultReadBytes is CursorConfig.MaxBytes.
const defaultReadBytes = 64 << 20

// A cursor reads the log for a consumer group, and moves the group's position: see seam.Cursor.
type cursor struct {
	outbox *Outbox
	config seam.CursorConfig
	owner  OwnerToken

	read map[int64]MessageID // by position: what the last Read returned, and the message before it
}

var _ seam.Cursor[LogMessage] = (*cursor)(nil)

// A LogMessage is a message of the log with its position.
type LogMessage struct {
	Message
	Position int64

	// CreatedAt is when it was enqueued, by the database's clock.
	CreatedAt time.Time

	// LoggedAt is when it got its position, by the database's clock, and Age is how long ago that was when it was read. Times of
	// later positions may be earlier if the clock was set back.
	LoggedAt time.Time
	Age      time.Duration

	// Malformed says why the row's headers could not be read, if something else changed them; Headers are then empty.
	Malformed error
}

func (o *Outbox) openCursor(config seam.CursorConfig) (*cursor, error) {
	field.Default(&config.Lease, 30*time.Second)
	field.Default(&config.MaxBytes, defaultReadBytes)
	if config.Group == "" {
		return nil, field.Bad("CursorConfig.Group", "is empty; name the consumer group")
	}
	if err := field.Key("CursorConfig.Group", config.Group); err != nil {
		return nil, err
	}
	if err := field.Key("CursorConfig.Topic", config.Topic); err != nil {
		return nil, err
	}
	if config.MaxBytes < 1 {
		return nil, field.Bad("CursorConfig.MaxBytes", "%d is less than 1", config.MaxBytes)
	}
	if config.Version < 0 {
		return nil, field.Bad("CursorConfig.Version", "%d is negative", config.Version)
	}
	if err := validateLease("CursorConfig.Lease", config.Lease); err != nil {
		return nil, err
	}
	return o.cursor(config), nil
}

func (o *Outbox) cursor(config seam.CursorConfig) *cursor {
	return &cursor{outbox: o, config: config, owner: base.NewOwnerToken()}
}

// Acquire takes the lease.
func (c *cursor) Acquire(ctx context.Context) (position int64, err error) {
	s, err := c.acquire(ctx)
	return s.position, err
}

func (c *cursor) acquire(ctx context.Context) (groupState, error) {
	c.read = nil // the position comes from the database, whatever was read
	return c.move(ctx, c.outbox.db, leaseArg{LeaseMS: c.config.Lease.Milliseconds(), Take: true})
}

// Renew extends the lease.
func (c *cursor) Renew(ctx context.Context) error { return c.Advance(ctx, c.outbox.db, 0, 0) }

// Advance moves the group on.
func (c *cursor) Advance(ctx context.Context, x Executor, from, to int64) error {
	_, err := c.move(ctx, x, leaseArg{From: from, Position: to, LeaseMS: c.config.Lease.Milliseconds()})
	return err
}

// create creates the group, if there is none, and leaves its lease alone.
func (c *cursor) create(ctx context.Context) error {
	_, err := c.move(ctx, c.outbox.db, leaseArg{Take: true})
	return err
}

// Release gives the lease back.
func (c *cursor) Release(ctx context.Context) error {
	_, err := c.move(ctx, c.outbox.db, leaseArg{})
	return err
}

type leaseArg struct {
	Group    string     `json:"group"`
	Topic    string     `json:"topic"`
	Owner    OwnerToken `json:"owner"`
	From     int64      `json:"from"`
	Position int64      `json:"position"`
	Message  string     `json:"message"` // at Position, if it is known
	Tried    int64      `json:"tried"`   // a position, and the attempts spent on it, if not 0
	Attempts int        `json:"attempts"`
	LeaseMS  int64      `json:"lease_ms"`
	Take     bool       `json:"take"`
	Once     bool       `json:"once,omitempty"` // refused if the group has passed Position
	Version  int64      `json:"version"`
	Shape    int64      `json:"shape"`
}

// A groupState is the state of a group in the database.
type groupState struct {
	held     bool
	position int64
	last     int64 // the last position in the log
	tried    int64
	attempts int

	version, shape int64 // of the reader that has the lease, or had it last

	interrupted bool // a reader did not release the lease, and none has moved the group on since
}

// move returns the group's state, and an error if the lease is not this reader's or the group could not be moved.
func (c *cursor) move(ctx context.Context, x Executor, arg leaseArg) (groupState, error) {
	if isNil(x) {
		return groupState{}, base.ErrNilDB
	}
	arg.Group, arg.Topic, arg.Owner, arg.Version, arg.Shape = c.config.Group, c.config.Topic, c.owner, c.config.Version, c.config.Shape
	if arg.Position > 0 && arg.Message == "" {
		if id, known := c.read[arg.Position]; known {
			arg.Message = id.String()
		}
	}
	states, err := engine.Call(ctx, c.outbox.engine, x, opLogLease, arg, nil, func(rows *sql.Rows, s *groupState) error {
		return rows.Scan(&s.held, &s.position, &s.last, &s.tried, &s.attempts, &s.version, &s.shape, &s.interrupted)
	})
	if err != nil {
		return groupState{}, err
	}
	s := groupState{version: c.config.Version, shape: c.config.Shape}
	if len(states) > 0 {
		s = states[0]
	}
	switch believed := max(arg.From, arg.Position); {
	case arg.LeaseMS == 0:
		return s, nil
	case !s.held && arg.Take:
		return s, &base.LeaseHeldError{Version: s.version, Shape: s.shape}
	case !s.held:
		return s, ErrLeaseLost
	case s.position < believed:
		return s, c.wentBack(believed, s.position, s.last)
	default:
		return s, nil
	}
}

func (c *cursor) wentBack(believed, position, last int64) error {
	return &LogWentBackError{Store: c.outbox.config.Store, Group: c.config.Group, Topic: c.config.Topic, Reader: believed, Position: position, Last: last}
}

// Read returns messages that come after a position.
func (c *cursor) Read(ctx context.Context, after int64, limit int) ([]LogMessage, error) {
	return c.readOn(ctx, c.outbox.db, after, limit)
}

func (c *cursor) readOn(ctx context.Context, x Executor, after int64, limit int) ([]LogMessage, error) {
	if limit < 1 || limit > maxBatch {
		return nil, field.Bad("limit", "%d is not between 1 and %d", limit, maxBatch)
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
	messages, err := engine.Call(ctx, c.outbox.engine, x, opLogRead, arg, nil, func(rows *sql.Rows, l *LogMessage) error { return l.scan(rows) })
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
