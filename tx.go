package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/incursa/watermill-outbox/internal/base"
)

// An Executor is what statements run on: a *sql.DB (the outbox then makes its own transaction), or a caller's *sql.Tx
// or *sql.Conn, whose transaction the outbox joins and never ends. One thing ends it: a ctx that is over in the middle of a
// call. What the call has done by then cannot be committed without the rest, on any server database.
type Executor = base.Executor

// An ownConn is a connection that the outbox itself has taken: what runs on it is a transaction of ours, as on a *sql.DB.
type ownConn struct{ *sql.Conn }

// ours reports whether what runs on x is a transaction of the outbox's own, and not a part of the caller's.
func ours(x Executor) bool {
	switch x.(type) {
	case *sql.DB, ownConn:
		return true
	default:
		return false
	}
}

type txKey struct{}

// txScope is a transaction in a context. Where InTx commits it, it also collects what to wake afterwards.
type txScope struct {
	tx *sql.Tx
	db *sql.DB // of InTx

	mu     sync.Mutex
	topics map[string]map[string]struct{} // by store; nil where the caller commits
}

// WithTx returns a context that carries tx. A Publisher finds it in a message's context and publishes inside it.
// The transaction stays yours to commit or roll back. A nil tx returns a context without one, for what outlives it.
func WithTx(ctx context.Context, tx *sql.Tx) context.Context {
	if tx == nil {
		return withoutTx(ctx)
	}
	return context.WithValue(ctx, txKey{}, &txScope{tx: tx})
}

func withoutTx(ctx context.Context) context.Context {
	return context.WithValue(ctx, txKey{}, (*txScope)(nil))
}

// TxFrom returns the transaction that WithTx or InTx has put into ctx.
func TxFrom(ctx context.Context) (*sql.Tx, bool) {
	scope := scopeFrom(ctx)
	if scope == nil || scope.tx == nil {
		return nil, false
	}
	return scope.tx, true
}

func scopeFrom(ctx context.Context) *txScope {
	scope, _ := ctx.Value(txKey{}).(*txScope)
	return scope
}

// InTx runs f in a transaction of db, commits it, and then wakes the subscribers of the topics that were published in
// it. If f returns an error or panics, everything is rolled back and nothing was sent. The context given to f carries
// the transaction, so that a Publisher finds it in the context of the messages.
//
// If the answer to the commit was lost, the error is an ErrUnknownOutcome: f's work may have been committed. Any other
// error of InTx itself means that it was not.
//
// Inside another InTx on the same db, f joins that transaction: the outermost call commits.
func InTx(ctx context.Context, db *sql.DB, f func(ctx context.Context, tx *sql.Tx) error) error {
	if db == nil {
		return base.ErrNilDB
	}
	if outer := scopeFrom(ctx); outer != nil && outer.db == db {
		return f(ctx, outer.tx)
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin the transaction: %w", err)
	}
	// After a commit this is a no-op; otherwise an error of f, or its panic, is what the caller needs to see.
	defer func() { _ = tx.Rollback() }()

	scope := &txScope{tx: tx, db: db, topics: map[string]map[string]struct{}{}}
	if err := f(context.WithValue(ctx, txKey{}, scope), tx); err != nil {
		return err
	}
	if err := commit(ctx, tx); err != nil {
		return err
	}
	scope.wake()
	return nil
}

// wakeAfter wakes the subscribers of topics when what was written on x is committed: now, when InTx commits, or, as
// nobody tells when a caller's own transaction is, by looking often for a moment.
func (o *Outbox) wakeAfter(ctx context.Context, x Executor, topics []string) {
	if ours(x) {
		wakeStore(o.config.Store, topics...)
		return
	}
	if scope := scopeFrom(ctx); scope != nil && scope.topics != nil && x == Executor(scope.tx) {
		scope.add(o.config.Store, topics)
		return
	}
	expectSoon(o.config.Store, topics)
}

func (s *txScope) add(store string, topics []string) {
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
