package faults

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"time"
)

// A Kind is what happens to a statement.
type Kind int

// The kinds of faults. After a cut the connection is closed, so that the database rolls back what was open on it, and
// it answers driver.ErrBadConn from then on.
const (
	None       Kind = iota
	Delay           // sent late
	Hang            // never sent: nothing happens until the context ends, or For has passed; then cut
	HangAfter       // run, but the answer does not come until then; then cut
	Deaf            // like Hang, but deaf to the context
	BadConn         // never sent, and the driver knows it: driver.ErrBadConn, on which database/sql may try another connection
	Cut             // cut before it was sent, and the driver cannot know
	CutAfter        // run, and cut before its answer
	CutWithin       // run, and cut in the middle of its rows
	Refuse          // answered with Err; the connection stays
	End             // answered with Err, by which the database ends the connection
	numberKind      // of kinds
)

func (k Kind) String() string {
	return [numberKind]string{"none", "delay", "hang", "hang after", "deaf", "bad connection", "cut", "cut after", "cut within", "refuse", "end"}[k]
}

// A Fault is what happens to one statement. The zero Fault is none.
type Fault struct {
	Kind Kind
	For  time.Duration // of Delay, and the most of Hang, HangAfter and Deaf
	Err  error         // of Refuse and End

	// Abort is run in an open transaction that is refused a statement, to leave it as the database would.
	Abort string
}

// errCut is what a driver says of a connection that has gone while it waited.
var errCut = fmt.Errorf("injected cut: %w", io.ErrUnexpectedEOF)

// before is what happens before the statement is sent: with an error it is not sent at all.
func (f Fault) before(ctx context.Context, c *conn) error {
	switch f.Kind {
	case Delay:
		if !c.wait(ctx, f.For) {
			return c.cutWith(context.Cause(ctx))
		}
		return nil
	case Hang:
		return c.cutWith(c.hang(ctx, f.For))
	case Deaf:
		return c.cutWith(c.hang(context.WithoutCancel(ctx), f.For))
	case BadConn:
		return c.cutWith(driver.ErrBadConn)
	case Cut:
		return c.cutWith(errCut)
	case Refuse:
		c.abort(ctx, f.Abort)
		return f.Err
	case End:
		return c.cutWith(f.Err)
	default:
		return nil
	}
}

// after is what happens to the answer of a statement that was run.
func (f Fault) after(ctx context.Context, c *conn, answer any) (any, error) {
	rows, isRows := answer.(driver.Rows)
	switch f.Kind {
	case HangAfter, CutAfter:
		if isRows {
			if _, err := drain(rows); err != nil {
				return nil, err
			}
		}
		if f.Kind == HangAfter {
			return nil, c.cutWith(c.hang(ctx, f.For))
		}
		return nil, c.cutWith(errCut)
	case CutWithin:
		if !isRows {
			return nil, c.cutWith(errCut)
		}
		kept, err := drain(rows)
		if err != nil {
			return nil, err
		}
		kept.rows = kept.rows[:len(kept.rows)/2]
		kept.end = c.cutWith(errCut)
		return kept, nil
	default:
		return answer, nil
	}
}

// hang returns when ctx has ended or the time is over, with the error that the driver then has.
func (c *conn) hang(ctx context.Context, d time.Duration) error {
	if c.wait(ctx, d) {
		return errCut
	}
	return context.Cause(ctx)
}

// wait reports whether the time has passed, or Hooks.Release was closed, before ctx ended.
func (c *conn) wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.hooks.Release:
		return true
	case <-ctx.Done():
		return false
	}
}

// cutWith closes the connection below, which has the database roll back what is open, and returns err.
func (c *conn) cutWith(err error) error {
	if !c.cut.Swap(true) {
		if closing := c.Conn.Close(); closing != nil && c.hooks.Broken != nil {
			c.hooks.Broken(fmt.Errorf("close the connection that was cut: %w", closing))
		}
	}
	return err
}

// abort leaves an open transaction as a refused statement does. The statement fails, as it should.
func (c *conn) abort(ctx context.Context, statement string) {
	if !c.inTx.Load() || statement == "" {
		return
	}
	if base, ok := c.Conn.(driver.ExecerContext); ok {
		_, _ = base.ExecContext(context.WithoutCancel(ctx), statement, nil)
	}
}

// keptRows are rows that were read to their end, so that the database has done all of the statement.
type keptRows struct {
	columns []string
	rows    [][]driver.Value
	end     error
}

func drain(rows driver.Rows) (kept *keptRows, err error) {
	defer func() { err = errors.Join(err, rows.Close()) }()
	kept = &keptRows{columns: rows.Columns(), end: io.EOF}
	for {
		row := make([]driver.Value, len(kept.columns))
		if err := rows.Next(row); errors.Is(err, io.EOF) {
			return kept, nil
		} else if err != nil {
			return nil, err
		}
		for i, value := range row {
			if bytes, ok := value.([]byte); ok { // which are the driver's own until the next row
				row[i] = append([]byte{}, bytes...)
			}
		}
		kept.rows = append(kept.rows, row)
	}
}

func (r *keptRows) Columns() []string { return r.columns }
func (r *keptRows) Close() error      { return nil }

func (r *keptRows) Next(row []driver.Value) error {
	if len(r.rows) == 0 {
		return r.end
	}
	copy(row, r.rows[0])
	r.rows = r.rows[1:]
	return nil
}
