package faults

import (
	"context"
	"database/sql/driver"
	"errors"
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
	return &conn{base, c.hooks}, nil
}

type conn struct {
	driver.Conn
	hooks Hooks
}

func (c *conn) Ping(ctx context.Context) error {
	if base, ok := c.Conn.(driver.Pinger); ok {
		return base.Ping(ctx)
	}
	return nil
}

func (c *conn) ResetSession(ctx context.Context) error {
	if base, ok := c.Conn.(driver.SessionResetter); ok {
		return base.ResetSession(ctx)
	}
	return nil
}

func (c *conn) IsValid() bool {
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
	s, err := base.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	return &stmt{s, text, c.hooks}, nil
}

func (c *conn) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	base, ok := c.Conn.(driver.ExecerContext)
	if !ok {
		return nil, driver.ErrSkip // prepared, run and counted as a stmt
	}
	return around(ctx, c.hooks, text, args, func() (driver.Result, error) { return base.ExecContext(ctx, text, args) })
}

func (c *conn) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	base, ok := c.Conn.(driver.QueryerContext)
	if !ok {
		return nil, driver.ErrSkip
	}
	return around(ctx, c.hooks, text, args, func() (driver.Rows, error) { return base.QueryContext(ctx, text, args) })
}

func (c *conn) BeginTx(ctx context.Context, options driver.TxOptions) (driver.Tx, error) {
	base, ok := c.Conn.(driver.ConnBeginTx)
	if !ok {
		return nil, errors.New("the driver cannot begin with a context")
	}
	return around(ctx, c.hooks, Begin, nil, func() (driver.Tx, error) {
		t, err := base.BeginTx(ctx, options)
		if err != nil {
			return nil, err
		}
		return &tx{t, c.hooks}, nil
	})
}

type tx struct {
	base  driver.Tx
	hooks Hooks
}

// Commit with an error of a hook leaves the transaction to be rolled back, as a lost connection would.
func (t *tx) Commit() error {
	_, err := around(context.Background(), t.hooks, Commit, nil, func() (any, error) { return nil, t.base.Commit() })
	var injected *Error
	if errors.As(err, &injected) {
		return errors.Join(err, t.base.Rollback())
	}
	return err
}

func (t *tx) Rollback() error {
	_, err := around(context.Background(), t.hooks, Rollback, nil, func() (any, error) { return nil, t.base.Rollback() })
	return err
}

type stmt struct {
	driver.Stmt
	text  string
	hooks Hooks
}

func (s *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	base, ok := s.Stmt.(driver.StmtExecContext)
	if !ok {
		return nil, errors.New("the driver cannot execute with a context")
	}
	return around(ctx, s.hooks, s.text, args, func() (driver.Result, error) { return base.ExecContext(ctx, args) })
}

func (s *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	base, ok := s.Stmt.(driver.StmtQueryContext)
	if !ok {
		return nil, errors.New("the driver cannot query with a context")
	}
	return around(ctx, s.hooks, s.text, args, func() (driver.Rows, error) { return base.QueryContext(ctx, args) })
}

func around[T any](ctx context.Context, hooks Hooks, text string, args []driver.NamedValue, run func() (T, error)) (result T, err error) {
	statement := Statement{Text: text}
	for _, a := range args {
		statement.Args = append(statement.Args, a.Value)
	}
	if hooks.Before != nil {
		if err = hooks.Before(ctx, statement); err != nil {
			return result, err
		}
	}
	result, err = run()
	if hooks.After != nil {
		hooks.After(ctx, statement, err)
	}
	if hooks.Answer != nil && err == nil {
		err = hooks.Answer(ctx, statement)
	}
	return result, err
}
