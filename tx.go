package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"

	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/engine"
	"github.com/incursa/watermill-outbox/internal/field"
)

// An Executor runs statements: a *sql.DB, on which the outbox makes its own transaction, or a caller's *sql.Tx or *sql.Conn,
// whose transaction the outbox joins and does not end. There is one exception: a ctx that ends in the middle of a call
// ends the transaction, so that half of the call's work cannot be committed; later calls on a *sql.Tx then return sql.ErrTxDone.
// If you began a transaction with a *sql.Conn's BeginTx, pass the *sql.Tx: should the connection break, database/sql lets no call on
// the *sql.Conn return before that transaction has ended.
type Executor = base.Executor

type txKey struct{}

// A carriedTx is a transaction in a context. The zero value is none.
type carriedTx struct {
	tx *sql.Tx
	db *sql.DB // of the InTx that ends it; nil if the caller does
}

// WithTx returns a context that carries tx. A Publisher finds it in a message's context and publishes inside it.
// You commit or roll back the transaction yourself. With a nil tx, the context carries none, for work that outlives the
// transaction.
func WithTx(ctx context.Context, tx *sql.Tx) context.Context {
	return context.WithValue(ctx, txKey{}, carriedTx{tx: tx})
}

// TxFrom returns the transaction that WithTx or InTx put into ctx.
func TxFrom(ctx context.Context) (*sql.Tx, bool) {
	tx := carriedBy(ctx).tx
	return tx, tx != nil
}

func carriedBy(ctx context.Context) carriedTx {
	carried, _ := ctx.Value(txKey{}).(carriedTx)
	return carried
}

// InTx runs f in a transaction of db, flushes what Scoped publishers collected in it, commits, and wakes the subscribers of
// the topics published. If f returns an error or panics, it rolls back. The context passed to f carries the transaction, so
// that a Publisher finds it in the context of the messages.
// It returns an error if db or f is nil.
//
// InTx returns ErrUnknownOutcome if the answer to the commit was lost: f's work may have been committed. Any other error
// means that it was not. InTx never runs f twice; but if f returns the error of a server that takes no writes, as a standby does
// after a failover, it gives that connection up, so that the next call has another. f must not end the transaction itself: InTx then
// returns sql.ErrTxDone, whatever f has committed.
//
// Inside another InTx on the same db, f joins that transaction: the outermost call commits.
func InTx(ctx context.Context, db *sql.DB, f func(ctx context.Context, tx *sql.Tx) error) (err error) {
	if db == nil {
		return base.ErrNilDB
	}
	if f == nil {
		return field.Bad("f", "is nil; pass what is to run in the transaction")
	}
	if outer := carriedBy(ctx); outer.db == db {
		return f(ctx, outer.tx)
	}
	tx, end, err := engine.Begin(ctx, db)
	if err != nil {
		return fmt.Errorf("begin the transaction: %w", err)
	}
	scope := scopes.begin(tx)
	defer func() {
		end(err)
		scope.drop()
	}()
	if err := f(context.WithValue(ctx, txKey{}, carriedTx{tx, db}), tx); err != nil {
		return err
	}
	if err := scope.end(ctx, tx); err != nil {
		return err
	}
	if err := engine.Commit(ctx, tx); err != nil {
		return err
	}
	scope.wake()
	return nil
}

// wakeAfter wakes the subscribers of topics once what was written on x is committed: now, or when InTx commits. The commit
// of a caller's own transaction is not visible here, so the subscribers poll often for a moment.
func (o *Outbox) wakeAfter(x Executor, topics []string) {
	if engine.Ours(x) {
		wakeStore(o.config.Store, topics...)
		return
	}
	tx, _ := x.(*sql.Tx)
	o.wakeAfterScope(scopes.of(tx), topics)
}

// wakeAfterScope is wakeAfter for what was collected. A transaction without a scope is a caller's own.
func (o *Outbox) wakeAfterScope(s *txScope, topics []string) {
	if s == nil || s.own {
		expectSoon(o.config.Store, topics)
		return
	}
	s.wakeLater(o.config.Store, topics)
}

func (s *txScope) wakeLater(store string, topics []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.topics[store] == nil {
		s.topics[store] = map[string]struct{}{}
	}
	for _, topic := range topics {
		s.topics[store][topic] = struct{}{}
	}
}

func (s *txScope) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for store, topics := range s.topics {
		wakeStore(store, slices.Collect(maps.Keys(topics))...)
	}
}
