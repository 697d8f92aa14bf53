package faults

import (
	"context"
	"database/sql/driver"
	"errors"
	"strings"
	"sync/atomic"
)

// The wrappers offer database/sql all that it may ask for and pass it on; driver.ErrSkip says "not offered" where the
// driver below does not.

type dsnConnector struct {
	driver driver.Driver
	dsn    string
}

func (c dsnConnector) Connect(context.Context) (driver.Conn, error) { return c.driver.Open(c.dsn) }
func (c dsnConnector) Driver() driver.Driver                        { return c.driver }

type connector struct {
	base  driver.Connector
	hooks Hooks
}

func (c *connector) Driver() driver.Driver { return c.base.Driver() }

func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	if c.hooks.Connect != nil {
		c.hooks.Connect()
	}
	base, err := c.base.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: base, hooks: c.hooks}, nil
}

type conn struct {
	driver.Conn
	hooks Hooks
	cut   atomic.Bool // the connection below is closed
	inTx  atomic.Bool
}

func (c *conn) Close() error {
	if c.cut.Swap(true) {
		return nil
	}
	return c.Conn.Close()
}

func (c *conn) Ping(ctx context.Context) error {
	if c.cut.Load() {
		return driver.ErrBadConn
	}
	if base, ok := c.Conn.(driver.Pinger); ok {
		return base.Ping(ctx)
	}
	return nil
}

func (c *conn) ResetSession(ctx context.Context) error {
	if c.cut.Load() {
		return driver.ErrBadConn
	}
	if base, ok := c.Conn.(driver.SessionResetter); ok {
		return base.ResetSession(ctx)
	}
	return nil
}

func (c *conn) IsValid() bool {
	if c.cut.Load() {
		return false
	}
	if base, ok := c.Conn.(driver.Validator); ok {
		return base.IsValid()
	}
	return true
}

func (c *conn) CheckNamedValue(value *driver.NamedValue) error {
	if base, ok := c.Conn.(driver.NamedValueChecker); ok {
		return base.CheckNamedValue(value)
	}
	return driver.ErrSkip
}

func (c *conn) PrepareContext(ctx context.Context, text string) (driver.Stmt, error) {
	base, ok := c.Conn.(driver.ConnPrepareContext)
	if !ok {
		return nil, errors.New("the driver cannot prepare with a context")
	}
	if c.cut.Load() {
		return nil, driver.ErrBadConn
	}
	s, err := base.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	return &stmt{s, text, c}, nil
}

func (c *conn) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	base, ok := c.Conn.(driver.ExecerContext)
	if !ok {
		return nil, driver.ErrSkip // prepared, run and counted as a stmt
	}
	return around(ctx, c, text, args, func() (driver.Result, error) { return base.ExecContext(ctx, text, args) })
}

func (c *conn) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	base, ok := c.Conn.(driver.QueryerContext)
	if !ok {
		return nil, driver.ErrSkip
	}
	return around(ctx, c, text, args, func() (driver.Rows, error) { return base.QueryContext(ctx, text, args) })
}

func (c *conn) BeginTx(ctx context.Context, options driver.TxOptions) (driver.Tx, error) {
	base, ok := c.Conn.(driver.ConnBeginTx)
	if !ok {
		return nil, errors.New("the driver cannot begin with a context")
	}
	return around(ctx, c, Begin, nil, func() (driver.Tx, error) {
		t, err := base.BeginTx(ctx, options)
		if err != nil {
			return nil, err
		}
		return &tx{ctx, t, c}, nil
	})
}

// A tx keeps the context that it began with, as drivers do: database/sql has none for its end.
type tx struct {
	ctx  context.Context //nolint:containedctx // it says whose statement the end is
	base driver.Tx
	conn *conn
}

// Commit with an error of a hook leaves the transaction to be rolled back, as a lost connection would.
func (t *tx) Commit() error {
	_, err := around(context.WithoutCancel(t.ctx), t.conn, Commit, nil, func() (any, error) { return nil, t.base.Commit() })
	var injected *Error
	if errors.As(err, &injected) && !t.conn.cut.Load() {
		t.conn.inTx.Store(false)
		return errors.Join(err, t.base.Rollback())
	}
	return err
}

func (t *tx) Rollback() error {
	_, err := around(context.WithoutCancel(t.ctx), t.conn, Rollback, nil, func() (any, error) { return nil, t.base.Rollback() })
	return err
}

type stmt struct {
	driver.Stmt
	text string
	conn *conn
}

func (s *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	base, ok := s.Stmt.(driver.StmtExecContext)
	if !ok {
		return nil, errors.New("the driver cannot execute with a context")
	}
	return around(ctx, s.conn, s.text, args, func() (driver.Result, error) { return base.ExecContext(ctx, args) })
}

func (s *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	base, ok := s.Stmt.(driver.StmtQueryContext)
	if !ok {
		return nil, errors.New("the driver cannot query with a context")
	}
	return around(ctx, s.conn, s.text, args, func() (driver.Rows, error) { return base.QueryContext(ctx, args) })
}

func around[T any](ctx context.Context, c *conn, text string, args []driver.NamedValue, run func() (T, error)) (result T, err error) {
	if c.cut.Load() {
		return result, driver.ErrBadConn
	}
	hooks, statement := c.hooks, Statement{Text: text}
	for _, a := range args {
		statement.Args = append(statement.Args, a.Value)
	}
	if hooks.Before != nil {
		if err = hooks.Before(ctx, statement); err != nil {
			return result, err
		}
	}
	var fault Fault
	if hooks.Fault != nil {
		fault = hooks.Fault(ctx, statement)
	}
	if err = fault.before(ctx, c); err != nil {
		return result, err
	}
	if result, err = run(); err == nil {
		c.follow(text)
	}
	if hooks.After != nil {
		hooks.After(ctx, statement, err)
	}
	if hooks.Answer != nil && err == nil {
		if err = hooks.Answer(ctx, statement); err != nil {
			if rows, unread := any(result).(driver.Rows); unread {
				err = errors.Join(err, rows.Close()) // or the connection is busy for whoever has it next
			}
		}
	}
	if err == nil && fault.Kind != None {
		var answer any
		answer, err = fault.after(ctx, c, result)
		result, _ = answer.(T)
	}
	return result, err
}

// follow notes where transactions begin and end, by BeginTx or by text.
func (c *conn) follow(text string) {
	switch {
	case strings.HasPrefix(text, Begin):
		c.inTx.Store(true)
	case text == Commit, text == Rollback:
		c.inTx.Store(false)
	}
}
