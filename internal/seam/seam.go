// Package seam gives the other packages of this module access to functions of the root package that users do not see. The
// root sets them when it is initialized; a caller that has a value of one of its types has imported it.
//
// This package cannot import the root, so an interface with methods that only one of its types has stands for that type.
package seam

import (
	"context"
	"database/sql"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/incursa/watermill-outbox/internal/base"
)

// These lead from a value of the public API to its internals.
var (
	Outbox     func(AnOutbox) Operations
	Publisher  func(message.Publisher) Publishing // a *outbox.Publisher
	Subscriber func(ASubscriber) Subscribing
	Delivery   func(ADelivery) Delivering
	Sequencer  func(ASequencer) Stamping

	// WatchSequencer returns a function that logs an error while messages wait for a position in the log for longer than after.
	WatchSequencer func(o AnOutbox, logger watermill.LoggerAdapter, lease, after time.Duration) (look func(context.Context) error)

	WakeStore func(store string, topics ...string) // outbox.Wake, for one of several outboxes
)

// AnOutbox is a *outbox.Outbox.
type AnOutbox interface {
	NewID() (base.MessageID, error)
}

// ASubscriber is a *outbox.Subscriber.
type ASubscriber interface {
	message.Subscriber
	InFlight() map[string]int
}

// ADelivery is a *outbox.Delivery.
type ADelivery interface{ MessageID() base.MessageID }

// ASequencer is a *outbox.Sequencer.
type ASequencer interface {
	Run(ctx context.Context) error
}

// Operations are what join, inbox, fanout and eventstore are built on. They run on x, or without one in the transaction that
// ctx carries (outbox.InTx, outbox.WithTx), or else on the outbox's own *sql.DB. If InTx began that transaction on another
// *sql.DB, they return a *field.Error for ctx.
type Operations interface {
	// Logger is the logger that was passed to New, with the outbox's Store.
	Logger() watermill.LoggerAdapter

	// Run runs an operation of the schema files with its JSON argument, and passes each row that it returns to scan; nil
	// means that it returns none. On a *sql.DB it has its own transaction, and is run again if it loses a conflict.
	Run(ctx context.Context, x base.Executor, op string, arg any, scan func(*sql.Rows) error) error

	// RunWithBytes is Run for an operation that also takes bytes; nil means that it takes none.
	RunWithBytes(ctx context.Context, x base.Executor, op string, arg any, bytes []byte, scan func(*sql.Rows) error) error

	// InTx runs f in the transaction of x. A caller's transaction is never ended: if f returns an error, only its work is
	// rolled back, to a savepoint. On a *sql.DB, f runs as in outbox.InTx, and again if it loses a conflict or
	// its connection leads to a server that takes no writes.
	InTx(ctx context.Context, x base.Executor, f func(ctx context.Context, x base.Executor) error) error

	// ChangeJoin runs an operation that changes or counts joins, logs the joins that it ended, and wakes the subscribers of
	// messages that waited for them. It returns how many messages the operation ended. A refusal is a *base.JoinRefusal.
	ChangeJoin(ctx context.Context, x base.Executor, op string, arg any) (messages int, err error)

	// Around returns the same outbox for acts of an operator: around runs each batch that resumes a stream or takes from it
	// what is to be discarded, forgets a group, changes its dead letters, or purges, in a transaction that also has what it adds.
	Around(around func(ctx context.Context, batch Batch) (int, error)) AnOutbox

	// AppendEvents appends events to a stream that has the expected version, a number or one of those of package base, all or
	// none. It returns a *base.VersionRefusal, base.ErrStreamArchived, or outbox.ErrDuplicateID; nothing is written then, and a
	// caller's transaction can go on.
	AppendEvents(ctx context.Context, x base.Executor, stream string, expected int64, events []base.Event) (base.Appended, error)
}

// A Batch changes something on x, and returns how much. It may be run again if its transaction lost a conflict.
type Batch func(ctx context.Context, x base.Executor) (int, error)

// Publishing is what package join builds its publisher on, and what tests see of it.
type Publishing interface {
	// Beside has do called in the transaction of each Publish whose messages want it, after they were inserted and before
	// anything is committed, with their ids in the same order. An error of do fails the Publish. Such a Publish is written by
	// itself, at once. Call Beside before the first Publish.
	Beside(wanted func(messages []*message.Message) bool,
		do func(ctx context.Context, x base.Executor, messages []*message.Message, ids []base.MessageID) error)

	// Waiting lets tests see how many calls wait for a batch and are not sent yet.
	Waiting() int
}

// Subscribing is what package stores builds its subscriber on.
type Subscribing interface {
	// SubscribeInto is Subscribe into a channel that several Subscribers may share, and that it leaves open. It calls done
	// after the last message of this subscription, but not if it returns an error.
	SubscribeInto(ctx context.Context, topic string, out chan<- *message.Message, done func()) error

	// LimitBy lets a Limiter decide when to claim, and how much. Call it before the first subscription.
	LimitBy(limiter Limiter)
}

// A Limiter schedules the claims of many Subscribers, each with its own store: it limits how many claim at once, and how
// many messages are out. It belongs to one Subscriber, which calls it from several goroutines. Only Acquire may block.
type Limiter interface {
	// Acquire waits until the Subscriber may claim, and returns how many messages it may take, at least 1. want returns how
	// many it could take now; it may be called until Acquire returns, by any goroutine and under locks of the Limiter.
	// Acquire returns 0 only if stop is closed first.
	Acquire(want func() int, stop <-chan struct{}) int

	// Claimed ends what Acquire allowed: so many messages were claimed, or none because of the error. The Subscriber neither
	// logs the error nor pauses after it: its next Acquire waits until the store should be tried again.
	Claimed(messages int, err error)

	// Free frees the places of claimed messages that were acked, nacked or released.
	Free(messages int)

	// Down reports that the store does not answer and is left alone, except for what Acquire allows: nothing is reaped or
	// purged, and no one looks for topics without a handler. Leases of messages in handlers are still renewed; otherwise
	// another worker would handle the same messages.
	Down() bool
}

// Delivering is what join, middleware and forwarder do with a delivery.
type Delivering interface {
	// In returns ctx with the delivery, for DeliveryFrom.
	In(ctx context.Context) context.Context

	// Claim returns the message's row and the claim that holds it; both are zero in a consumer group, which claims no rows.
	Claim() (base.WorkItemID, base.OwnerToken)

	// ReleaseTx gives the message back in the handler's own transaction, to be delivered again after a delay, without
	// spending an attempt: it came too early. Then ack, as after SettleTx. It returns an error in a consumer group, which goes
	// in order.
	ReleaseTx(ctx context.Context, tx *sql.Tx, delay time.Duration) error

	// Released reports whether ReleaseTx has given the message back, if its transaction was committed.
	Released() bool

	// Postpone says, before the handler nacks, that the message was not tried: it is delivered again after the delay, or at
	// once if that is 0. No attempt is spent, nothing is logged, and LastError stays as it was. A consumer group, which goes
	// in order, waits for the delay, or for the Backoff if that is 0.
	Postpone(delay time.Duration)
}

// Stamping lets tests run a Sequencer step by step.
type Stamping interface {
	// Stamp is one round of Run: it gives the next positions to up to 1,000 committed messages, wakes the readers of their
	// topics, and returns how many.
	Stamp(ctx context.Context) (int, error)
}
