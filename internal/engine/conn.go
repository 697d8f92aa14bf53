package engine

import (
	"database/sql"

	"github.com/incursa/watermill-outbox/internal/base"
)

// An OwnConn is a connection that the outbox took itself: what runs on it is in the outbox's own transaction, as on a *sql.DB.
type OwnConn struct{ *sql.Conn }

// Ours reports whether what runs on x is in the outbox's own transaction, and not in the caller's.
func Ours(x base.Executor) bool {
	switch x.(type) {
	case *sql.DB, OwnConn:
		return true
	default:
		return false
	}
}

// Flushing is a caller's transaction for which Before is running: what is run on it there does not call Before again.
type Flushing struct{ *sql.Tx }
