package outbox

import (
	"database/sql"
	"sync"
	"weak"
)

// scopes are the scopes of this process.
var scopes txScopes

// txScopes are the scopes of the transactions of InTx, and of those of callers in which something was collected. They are found by
// the transaction, because what runs in one may have been given that alone, without its context.
type txScopes struct {
	byTx sync.Map // weak.Pointer[sql.Tx] to *txScope
}

// of returns the scope of a transaction, or nil.
func (m *txScopes) of(tx *sql.Tx) *txScope {
	value, _ := m.byTx.Load(weak.Make(tx))
	scope, _ := value.(*txScope)
	return scope
}

// begin adds the scope of a transaction of InTx.
func (m *txScopes) begin(tx *sql.Tx) *txScope {
	scope := &txScope{tx: weak.Make(tx), topics: map[string]map[string]struct{}{}}
	m.byTx.Store(scope.tx, scope)
	return scope
}

// ensure returns the scope of a transaction. One that had none, so that it is new, is a caller's own.
func (m *txScopes) ensure(tx *sql.Tx) (scope *txScope, isNew bool) {
	if scope := m.of(tx); scope != nil {
		return scope, false
	}
	key := weak.Make(tx)
	value, known := m.byTx.LoadOrStore(key, &txScope{tx: key, own: true})
	scope, _ = value.(*txScope)
	return scope, !known
}

// remove removes a scope, but not a newer one of its transaction.
func (m *txScopes) remove(scope *txScope) { m.byTx.CompareAndDelete(scope.tx, scope) }

// eachOwn calls f with the scopes of callers' own transactions.
func (m *txScopes) eachOwn(f func(*txScope)) {
	m.byTx.Range(func(_, value any) bool {
		if scope, _ := value.(*txScope); scope.own {
			f(scope)
		}
		return true
	})
}
