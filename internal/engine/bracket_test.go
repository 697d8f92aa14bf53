package engine_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/dialect"
	"github.com/incursa/watermill-outbox/internal/engine"
)

// deaf is a database that never answers. It records the ends of its transactions and connections.
type deaf struct {
	asked context.CancelFunc
	ended []string
}

func (d *deaf) Connect(context.Context) (driver.Conn, error) { return &deafConn{d}, nil }
func (d *deaf) Driver() driver.Driver                        { return nil }

type deafConn struct{ database *deaf }

func (c *deafConn) QueryContext(ctx context.Context, _ string, _ []driver.NamedValue) (driver.Rows, error) {
	c.database.asked()
	<-ctx.Done()
	return nil, ctx.Err()
}

func (c *deafConn) Prepare(string) (driver.Stmt, error) { return nil, errors.New("unused") }
func (c *deafConn) Begin() (driver.Tx, error)           { return c, nil }
func (c *deafConn) Commit() error                       { return c.end("commit") }
func (c *deafConn) Rollback() error                     { return c.end("rollback") }
func (c *deafConn) Close() error                        { return c.end("close") }

func (c *deafConn) end(how string) error {
	c.database.ended = append(c.database.ended, how)
	return nil
}

// When a call to SQL Server is cut off, the caller could still commit half of its work, and the outbox's own transaction may
// stay open on its connection.
func TestTrap_ACallThatIsCutOff(t *testing.T) {
	callOn := func(t *testing.T, on func(*sql.DB) base.Executor) (d *deaf, x base.Executor) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		d = &deaf{asked: cancel}
		db := sql.OpenDB(d)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		e, err := engine.New(dialect.SQLServer{}, "", "", nil)
		require.NoError(t, err)
		x = on(db)
		_, err = engine.Call(ctx, e, x, "outbox_settle", struct{}{}, nil, func(*sql.Rows, *struct{}) error { return nil })
		require.ErrorIs(t, err, context.Canceled)
		return d, x
	}
	t.Run("in a caller's transaction, which cannot be committed then", func(t *testing.T) {
		d, x := callOn(t, func(db *sql.DB) base.Executor {
			tx, err := db.BeginTx(context.WithoutCancel(t.Context()), nil)
			require.NoError(t, err)
			return tx
		})
		tx, ok := x.(*sql.Tx)
		require.True(t, ok)
		require.ErrorIs(t, tx.Commit(), sql.ErrTxDone)
		require.Equal(t, []string{"rollback"}, d.ended)
	})
	t.Run("on a caller's connection, which is closed", func(t *testing.T) {
		d, _ := callOn(t, func(db *sql.DB) base.Executor {
			conn, err := db.Conn(context.WithoutCancel(t.Context()))
			require.NoError(t, err)
			return conn
		})
		require.Equal(t, []string{"close"}, d.ended)
	})
	t.Run("on a caller's connection, which is not waited for while a *sql.Tx has it", func(t *testing.T) {
		var tx *sql.Tx
		_, x := callOn(t, func(db *sql.DB) base.Executor {
			conn, err := db.Conn(context.WithoutCancel(t.Context()))
			require.NoError(t, err)
			tx, err = conn.BeginTx(context.WithoutCancel(t.Context()), nil)
			require.NoError(t, err)
			return conn
		})
		_, err := x.ExecContext(t.Context(), "")
		require.ErrorIs(t, err, sql.ErrConnDone)
		require.NoError(t, tx.Rollback())
	})
	t.Run("on one of the pool, which does not get it back", func(t *testing.T) {
		d, _ := callOn(t, func(db *sql.DB) base.Executor { return db })
		require.Equal(t, []string{"close"}, d.ended)
	})
}

// A recorded executor notes its statements.
type recorded struct {
	base.Executor
	statements []string
}

func (r *recorded) ExecContext(_ context.Context, statement string, _ ...any) (sql.Result, error) {
	r.statements = append(r.statements, statement)
	return driver.RowsAffected(0), nil
}

// SQL Server goes back to the latest savepoint of a name. What fails after an inner one has succeeded must go back to the outer.
func TestTrap_SavepointsInEachOtherHaveTheirOwnNames(t *testing.T) {
	failed := errors.New("failed")
	for _, d := range []dialect.Dialect{dialect.SQLServer{}, dialect.Postgres{}, dialect.SQLite{}} {
		e, err := engine.New(d, "", "", nil)
		require.NoError(t, err)
		x := &recorded{}
		err = e.InSavepoint(t.Context(), x, func(x base.Executor) error {
			if err := e.InSavepoint(t.Context(), x, func(base.Executor) error { return nil }); err != nil {
				return err
			}
			return failed
		})
		require.ErrorIs(t, err, failed)
		outer, inner, back := x.statements[0], x.statements[1], x.statements[len(x.statements)-1]
		require.NotEqual(t, outer, inner)
		require.Contains(t, back, outer[strings.LastIndex(outer, " ")+1:])
		require.NotContains(t, back, "{")
	}
}
