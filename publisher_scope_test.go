package outbox

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"
)

// Of two flushes that find the same scope empty, the later one must not remove the scope that has been begun between them.
func TestTrap_AScopeIsForgottenOnlyInItsOwnName(t *testing.T) {
	p, tx := &Publisher{}, new(sql.Tx)
	for _, again := range []func(*txScope){(*txScope).forget, func(s *txScope) { s.drop() }} {
		old := p.ensureScope(tx)
		old.flushing.Lock()
		old.forget()
		require.Same(t, old, scopes.of(tx), "what is being written may be put back")
		old.flushing.Unlock()
		old.forget()
		newer := p.ensureScope(tx)
		require.NotSame(t, old, newer)
		again(old)
		require.Same(t, newer, scopes.of(tx))
		newer.forget()
		require.Nil(t, scopes.of(tx))
	}
}
