package base

import (
	"context"
	"database/sql"
)

// An Executor runs statements: a *sql.DB, or a caller's *sql.Tx or *sql.Conn.
type Executor interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}
