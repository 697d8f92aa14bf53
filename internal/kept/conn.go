package kept

import (
	"context"
	"database/sql/driver"
	"errors"
)

// most is how many statements a connection keeps, at some kilobytes each: enough for a few outboxes.
const most = 250

// A connection is a driver's connection, with every interface that database/sql may use.
type connection interface {
	driver.Conn
	driver.ConnPrepareContext
	driver.ConnBeginTx
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

// A statement is compiled. It survives schema changes, because SQLite then recompiles it.
type statement interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

// A conn is a connection that keeps statements until it is closed. One goroutine at a time uses it and its rows, as
// database/sql promises.
type conn struct {
	connection
	idle map[string]statement // by text, without those that are running or have open rows
}

// Unwrap returns the driver's connection.
func (c *conn) Unwrap() driver.Conn { return c.connection }

// CheckNamedValue implements driver.NamedValueChecker, if the driver does.
func (c *conn) CheckNamedValue(value *driver.NamedValue) error {
	if base, ok := c.connection.(driver.NamedValueChecker); ok {
		return base.CheckNamedValue(value)
	}
	return driver.ErrSkip
}

// ExecContext implements driver.ExecerContext.
func (c *conn) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	if !keeps(ctx) {
		return c.connection.ExecContext(ctx, text, args)
	}
	s, err := c.take(ctx, text)
	if err != nil {
		return nil, err
	}
	result, err := s.ExecContext(ctx, args)
	return result, c.giveBack(text, s, err)
}

// QueryContext implements driver.QueryerContext.
func (c *conn) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	if !keeps(ctx) {
		return c.connection.QueryContext(ctx, text, args)
	}
	s, err := c.take(ctx, text)
	if err != nil {
		return nil, err
	}
	answer, err := s.QueryContext(ctx, args)
	if err != nil {
		return nil, c.giveBack(text, s, err)
	}
	return &rows{answer, func(err error) error { return c.giveBack(text, s, err) }}, nil
}

// take returns a statement that is not in use, and compiles one if necessary.
func (c *conn) take(ctx context.Context, text string) (statement, error) {
	if s, ok := c.idle[text]; ok {
		delete(c.idle, text)
		return s, nil
	}
	compiled, err := c.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	s, ok := compiled.(statement)
	if !ok {
		return nil, errors.Join(errors.New("the driver's statements take no context"), compiled.Close())
	}
	return s, nil
}

// giveBack keeps a statement for the next use, unless its use failed or another is kept already. It returns that error;
// closing a statement only repeats the error of its last run.
func (c *conn) giveBack(text string, s statement, err error) error {
	if _, another := c.idle[text]; err != nil || another {
		_ = s.Close()
		return err
	}
	if len(c.idle) == most {
		c.closeIdle() // some may never be used again, and the others will soon be back
	}
	c.idle[text] = s
	return nil
}

func (c *conn) closeIdle() {
	for _, s := range c.idle {
		_ = s.Close()
	}
	clear(c.idle)
}

// Close implements driver.Conn. SQLite holds on to the file until the last statement is closed.
func (c *conn) Close() error {
	c.closeIdle()
	return c.connection.Close()
}

// rows give their statement back.
type rows struct {
	driver.Rows
	giveBack func(error) error
}

// Close implements driver.Rows.
func (r *rows) Close() error { return r.giveBack(r.Rows.Close()) }
