package seam

import (
	"context"
	"fmt"
	"time"

	"github.com/incursa/watermill-outbox/internal/base"
)

// CursorConfig configures a Cursor.
type CursorConfig struct {
	// Group is the consumer group that the position belongs to. Required.
	Group string

	// Topic is the topic to read. A group's position in the whole log is separate from its positions in topics. Defaults to
	// AllTopics.
	Topic string

	// Lease is how long the group waits for this reader if its process dies. Defaults to 30 s.
	Lease time.Duration

	// MaxBytes is the most bytes of payloads and headers that one Read returns; a larger message is returned alone. Defaults
	// to 64 MB.
	MaxBytes int64

	// Version orders successive deployments: a reader with a higher Version takes the lease from one with a lower Version at
	// once. Defaults to 0.
	Version int64

	// Shape is any number that differs between readers of the same Version that behave differently: Acquire reports the Shape
	// of the reader that has the lease. Defaults to 0.
	Shape int64
}

// AllTopics is the topic of a Cursor that reads the whole log.
const AllTopics = ""

// A Cursor reads the log in order for a consumer group, and while it has the group's lease, it alone moves the group's
// position. Positions are not the numbers that messages get on insert, which commit out of order; see outbox.Sequencer. Its
// messages are outbox.LogMessage.
//
// Work in the same transaction as Advance is done once for each message, even if readers die and others take over. A Cursor
// is for one goroutine, except for Renew, which may be called concurrently.
type Cursor[Message any] interface {
	// Acquire takes the lease, or extends it if this reader has it, and returns the group's position: that of the last message
	// that it has passed. A new group begins with 0; from then on, messages that it has not passed are not purged. While
	// another reader has the lease, Acquire returns a *base.LeaseHeldError, which is base.ErrLeaseHeld.
	Acquire(ctx context.Context) (position int64, err error)

	// Renew extends the lease. Unlike Acquire, it does not take the lease again if another reader has had it in between: it
	// then returns outbox.ErrLeaseLost.
	Renew(ctx context.Context) error

	// Advance moves the group from the position that the reader knows, from the last Acquire or the last committed Advance, to
	// another one, but never back, and extends the lease. It runs in the caller's transaction if x is one, and locks the
	// group's row until that ends: no one can take the lease in between.
	//
	// It returns outbox.ErrLeaseLost if another reader has had the lease, and a *outbox.LogWentBackError if the database is
	// older than this reader; Acquire then returns the position to go on from. In both cases the group has not moved; roll the
	// transaction back.
	//
	// An expired lease that no one took is still held. If the commit fails, call Acquire for the group's position.
	Advance(ctx context.Context, x base.Executor, from, to int64) error

	// Release gives the lease back, so that another reader need not wait for it to expire. If it is no longer held, Release
	// does nothing.
	Release(ctx context.Context) error

	// Read returns up to limit messages, 1 to 1,000, after a position, in order, as far as CursorConfig.MaxBytes allows. It
	// needs no lease. If the log ends before that position, or has a different message there than this Cursor has read, the
	// database is older than the reader: Read returns a *outbox.LogWentBackError.
	Read(ctx context.Context, after int64, limit int) ([]Message, error)
}

// OpenCursor is NewCursor without the type of messages.
var OpenCursor func(AnOutbox, CursorConfig) (any, error)

// NewCursor returns a reader of the log with its own owner token; call it as NewCursor[outbox.LogMessage]. It does not touch
// the database. It returns an *outbox.FieldError that names a bad field.
func NewCursor[Message any](o AnOutbox, config CursorConfig) (Cursor[Message], error) {
	opened, err := OpenCursor(o, config)
	if err != nil {
		return nil, err
	}
	c, ok := opened.(Cursor[Message])
	if !ok {
		return nil, fmt.Errorf("open a cursor: its messages are not %T", *new(Message))
	}
	return c, nil
}
