// Package seam is how the packages of this module reach what the root package does for them and shows to no user. The
// root fills in the functions when it is initialized; whoever has a value of one of its types has imported it.
//
// A parameter stands for a type of the root, which this package cannot import, by what only that type has.
package seam

import (
	"context"
	"database/sql"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/incursa/watermill-outbox/internal/base"
)

// These lead from a value of the public API to the rest of it.
var (
	Outbox     func(AnOutbox) Operations
	Publisher  func(message.Publisher) Publishing // a *outbox.Publisher
	Subscriber func(ASubscriber) Subscribing
	Delivery   func(ADelivery) Delivering
	Sequencer  func(ASequencer) Stamping

	WakeStore func(store string, topics ...string) // outbox.Wake, for one of many outboxes
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

// Operations are what join, inbox and fanout are built on.
type Operations interface {
	// Logger is the logger that New was given, with the outbox's Store.
	Logger() watermill.LoggerAdapter

	// Run runs an operation of the schema files, which has one JSON argument, and gives each row that it answers with to
	// scan; nil means that it answers with none. On a *sql.DB it is a transaction of its own, which is run again if it lost
	// a conflict.
	Run(ctx context.Context, x base.Executor, op string, arg any, scan func(*sql.Rows) error) error

	// RunWithBytes is Run for an operation that takes bytes beside its argument; nil means that it takes none.
	RunWithBytes(ctx context.Context, x base.Executor, op string, arg any, bytes []byte, scan func(*sql.Rows) error) error

	// InTx runs f in the transaction of x: in a caller's, which it never ends, under a savepoint that takes back what f did
	// if it returns an error; on a *sql.DB in one of its own, as outbox.InTx, run again if it lost a conflict.
	InTx(ctx context.Context, x base.Executor, f func(ctx context.Context, x base.Executor) error) error

	// ChangeJoin runs an operation that changes or counts joins, logs the joins that have ended by it (JOIN-072) and wakes
	// the subscribers of what waited for them. A refusal is a *base.JoinRefusal.
	ChangeJoin(ctx context.Context, x base.Executor, op string, arg any) error
}

// Publishing is what package join makes its publisher of.
type Publishing interface {
	// Beside has f called in the transaction of each Publish, after the rows of its messages were inserted and before
	// anything is committed, with their ids in the same order. An error fails the call. It comes before the first Publish.
	Beside(f func(ctx context.Context, x base.Executor, messages []*message.Message, ids []base.MessageID) error)
}

// Subscribing is what package stores makes its subscriber of.
type Subscribing interface {
	// SubscribeInto is Subscribe into a channel that several Subscribers may share, and that it leaves open. done is called
	// once nothing more comes from this subscription; not if an error is returned.
	SubscribeInto(ctx context.Context, topic string, out chan<- *message.Message, done func()) error

	// LimitBy has a Limiter decide when to claim, and how much. It comes before the first subscription.
	LimitBy(limiter Limiter)
}

// A Limiter shares out the claims of many Subscribers, each on a store of its own, so that a bounded number of them claims
// at once and no more messages are out than wanted. It belongs to one Subscriber, which calls it from several goroutines.
// None of the methods but Acquire may block.
type Limiter interface {
	// Acquire waits until the Subscriber may claim, and returns how many messages it may take, at least 1. want says how
	// many it could take now; it may be called until Acquire returns, by any goroutine and under locks of the Limiter.
	// Acquire returns 0 if stop is closed first, and only then.
	Acquire(want func() int, stop <-chan struct{}) int

	// Claimed ends what Acquire has allowed: so many messages were claimed, or none because of the error. The Subscriber
	// neither logs the error nor pauses because of it: its next Acquire waits until the store is worth another try.
	Claimed(messages int, err error)

	// Free gives back the places of messages that were claimed: they were acked, nacked or released.
	Free(messages int)

	// Down says that the store does not answer, and is left alone but for what Acquire allows: nothing is reaped or purged,
	// and nobody looks for topics without a handler. Leases of what is being handled are still renewed, for without that
	// another would handle the same.
	Down() bool
}

// Delivering is what join, middleware and forwarder do with a delivery.
type Delivering interface {
	// In returns a context in which DeliveryFrom finds the delivery, and all else as in ctx.
	In(ctx context.Context) context.Context

	// Claim names the message's row and the claim that holds it; both are zero in a consumer group, where no row is claimed.
	Claim() (base.WorkItemID, base.OwnerToken)

	// ReleaseTx gives the message back in the handler's own transaction, to be delivered again after a delay: it was not
	// its time yet, and no attempt is spent. Then ack, as after SettleTx. A consumer group, which goes in order, refuses it.
	ReleaseTx(ctx context.Context, tx *sql.Tx, delay time.Duration) error

	// Postpone says, before the handler nacks, that the message was not tried: it is delivered again after the delay. No
	// attempt is spent, nothing is logged, and LastError stays as it was; with 0 it is due at once. A consumer group, which
	// goes in order, waits for the delay, or without one for the Backoff.
	Postpone(delay time.Duration)
}

// Stamping is what tests do with a Sequencer.
type Stamping interface {
	// Stamp gives the next positions to up to 1,000 committed messages, wakes the readers of their topics, and returns how
	// many: one round of Run.
	Stamp(ctx context.Context) (int, error)
}
