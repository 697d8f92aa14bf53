package seam

import (
	"context"
	"fmt"
	"time"

	"github.com/incursa/watermill-outbox/internal/base"
)

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

	// Version orders readers that are deployed one after the other: one of a higher Version takes the lease from one of a
	// lower at once. Defaults to 0.
	Version int64

	// Shape is any number that differs where readers of one Version do not do the same: Acquire tells it of the reader that
	// has the lease. Defaults to 0.
	Shape int64
}

// AllTopics is the topic of a Cursor that reads the whole log.
const AllTopics = ""

// A Cursor is one reader's hold on a consumer group's place in the log: it reads messages in order, and while it has the
// group's lease it alone moves the place on. Nothing of it goes by the number that a message got when it was inserted, which
// commits out of order; see outbox.Sequencer. Its messages are outbox.LogMessage.
//
// What is done in the transaction in which Advance moves the place is done once for each message, whatever dies and whoever
// takes over. A Cursor is for one goroutine, except for Renew, which may be called beside the others.
type Cursor[Message any] interface {
	// Acquire takes the lease, or extends it if it is this reader's, and returns the group's position: that of the last
	// message that it has passed. A group begins with 0, and from then on what is purged from the log waits for it. While
	// another has the lease it returns a *base.LeaseHeldError, which is base.ErrLeaseHeld.
	Acquire(ctx context.Context) (position int64, err error)

	// Renew extends the lease. Unlike Acquire it does not take it again if another has had it in between: it returns
	// outbox.ErrLeaseLost.
	Renew(ctx context.Context) error

	// Advance moves the group on from the position where the reader knows it to be, that of the last Acquire or of the last
	// Advance that was committed, to another, but never back, and extends the lease. It runs in the caller's transaction if x
	// is one, and locks the group's row until that ends: nobody can take the lease in between.
	//
	// If another has had the lease it returns outbox.ErrLeaseLost. A *outbox.LogWentBackError says that the database has come
	// back older than this reader; Acquire then tells from where to go on. In both cases the group has not moved; roll the
	// transaction back.
	//
	// An expired lease that nobody took is still held. After an error of the commit ask Acquire how far the group has come.
	Advance(ctx context.Context, x base.Executor, from, to int64) error

	// Release gives the lease back, so that another need not wait for its end. If it is not held any more, nothing happens.
	Release(ctx context.Context) error

	// Read returns up to limit messages, 1 to 1,000, that come after a position, in order, as far as CursorConfig.MaxBytes
	// allows. It needs no lease. If the log ends before that position, or has another message there than this Cursor has
	// read, the database has come back older than the reader: it returns a *outbox.LogWentBackError.
	Read(ctx context.Context, after int64, limit int) ([]Message, error)
}

// OpenCursor is NewCursor, before it knows the type of messages.
var OpenCursor func(AnOutbox, CursorConfig) (any, error)

// NewCursor returns a reader of the log with an owner token of its own, as NewCursor[outbox.LogMessage]. It does not touch
// the database.
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
