package engine

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/dialect"
	"github.com/incursa/watermill-outbox/internal/flow"
	"github.com/incursa/watermill-outbox/internal/kept"
)

// An Engine runs the operations of one outbox on any database: an operation has one JSON argument and one result.
// It holds no connection and is safe for concurrent use.
type Engine struct {
	Dialect dialect.Dialect
	Names   Names

	// Before is called before anything is run on x. If it returns an error, nothing is. May be nil.
	Before func(ctx context.Context, x base.Executor) error

	operations map[Operation]preparedCall
	readOnly   map[Operation]bool
}

// An Operation is the name of a file in the dialect's operations folder, without its extension.
type Operation string

// An operation in its own transaction is run again this often after losing a conflict, which usually takes some seconds, before
// the error is returned: many workers on a database that is serializable by default lose many. Where each try waits for a lock
// until it times out, conflictTime ends it: the lock may be held by a transaction that waits for this very call. An operation
// that was not sent, because the pool's connection turned out to be broken, is sent on another.
const (
	ConflictRetries = 60
	ConflictPause   = 100 * time.Millisecond
	conflictTime    = 30 * time.Second
	badConnections  = 3
)

// New returns the engine of the outbox that schema and table name; empty names are the defaults. readOnly are the operations that
// commit nothing. It returns a *field.Error that names a bad field.
func New(d dialect.Dialect, schema, table string, readOnly map[Operation]bool) (*Engine, error) {
	n, err := NewNames(d, schema, table)
	if err != nil {
		return nil, err
	}
	e := &Engine{Dialect: d, Names: n, readOnly: readOnly, operations: map[Operation]preparedCall{}}
	files, err := fs.Glob(d.Files(), "operations/*.sql")
	if err != nil {
		return nil, fmt.Errorf("list the operations: %w", err)
	}
	for _, file := range files {
		text, err := fs.ReadFile(d.Files(), file)
		if err != nil {
			return nil, fmt.Errorf("read the operation: %w", err)
		}
		name := strings.TrimSuffix(path.Base(file), ".sql")
		e.operations[Operation(name)] = n.prepare(d.Call(string(text)))
	}
	return e, nil
}

// A preparedCall is a Call with the outbox's names in it.
type preparedCall []statement

type statement struct {
	text       string
	parameters int
	gate       bool
}

func (n Names) prepare(c dialect.Call) preparedCall {
	var prepared preparedCall
	for _, s := range c {
		prepared = append(prepared, statement{n.Apply(s.Text), n.parameters(s.Text), s.Gate})
	}
	return prepared
}

// parameters is how many arguments a statement takes: those that it marks, because drivers refuse more. The name of a procedure
// marks none, and takes all. It reads the text before the outbox's names, which may contain anything, are put in.
func (n Names) parameters(text string) int {
	highest := 0
	for i, mark := range text {
		if mark != '?' && mark != '$' {
			continue
		}
		rest := text[i+1:]
		digits := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]
		if number, err := strconv.Atoi(digits); err == nil {
			highest = max(highest, number)
		}
	}
	if highest == 0 && n.dialect.Traits().Procedures {
		return math.MaxInt
	}
	return highest
}

// Call runs an operation on x with its argument and, if the Operation takes them, payloads, and returns its rows as scan
// reads them. On a *sql.DB the Operation has its own transaction, and is run again if it loses a conflict.
func Call[Row any](ctx context.Context, e *Engine, x base.Executor, op Operation, arg any, payloads []byte, scan func(*sql.Rows, *Row) error) ([]Row, error) {
	text, err := Encode(arg)
	if err != nil {
		return nil, fmt.Errorf("encode the argument of %s: %w", op, err)
	}
	args := []any{text}
	if payloads != nil {
		args = append(args, payloads)
	}
	if scan == nil {
		return nil, e.Do(ctx, x, op, args)
	}
	return CallWith(ctx, e, x, op, args, scan)
}

// CallWith is Call for an operation with typed parameters.
func CallWith[Row any](ctx context.Context, e *Engine, x base.Executor, op Operation, args []any, scan func(*sql.Rows, *Row) error) ([]Row, error) {
	var result []Row
	err := e.Retry(ctx, x, func() error {
		result = nil
		return e.run(ctx, x, op, args, func(rows *sql.Rows) error {
			var row Row
			result = append(result, row)
			return scan(rows, &result[len(result)-1])
		})
	})
	if err != nil {
		return nil, e.explain(op, err)
	}
	return result, nil
}

// Do runs an operation that returns no rows.
func (e *Engine) Do(ctx context.Context, x base.Executor, op Operation, args []any) error {
	if err := e.Retry(ctx, x, func() error { return e.run(ctx, x, op, args, nil) }); err != nil {
		return e.explain(op, err)
	}
	return nil
}

// Retry runs f again while it loses conflicts, if the transaction is the outbox's own. Callers retry theirs, and what may
// have been committed is never run again.
func (e *Engine) Retry(ctx context.Context, x base.Executor, f func() error) error {
	started := time.Now()
	for try := 0; ; try++ {
		err := f()
		if !Ours(x) || e.Dialect.Classify(err) != dialect.ErrorRetryable || errors.Is(err, base.ErrUnknownOutcome) {
			return err
		}
		if waited := time.Since(started); try == ConflictRetries || waited >= conflictTime {
			return fmt.Errorf("other transactions were in the way for %v; if the caller has begun one of them, pass it on with InTx or WithTx: %w",
				waited.Round(time.Millisecond), err)
		}
		if flow.Pause(ctx, rand.N(min(time.Millisecond<<min(try, 10), ConflictPause))) != nil {
			return err
		}
	}
}

func (e *Engine) explain(op Operation, err error) error {
	if wrong := dialect.Mismatch(e.Dialect, err); wrong != nil {
		return fmt.Errorf("%s: %w", op, wrong)
	}
	switch e.Dialect.Classify(err) {
	case dialect.ErrorSchema:
		return fmt.Errorf("%s on %s: %w: %w", op, e.Names.Qualified(e.Dialect.Traits().Table), base.ErrSchema, err)
	case dialect.ErrorDuplicate:
		return fmt.Errorf("%s: %w: %w", op, base.ErrDuplicateID, err)
	default:
		return fmt.Errorf("%s: %w", op, err)
	}
}

// Encode returns the value as JSON with no more escapes than necessary.
func Encode(arg any) (string, error) {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(arg)
	return strings.TrimSuffix(b.String(), "\n"), err
}

func (e *Engine) run(ctx context.Context, x base.Executor, op Operation, args []any, scan func(*sql.Rows) error) error {
	if err := e.before(ctx, x); err != nil {
		return err
	}
	answers := false
	if answer := scan; answer != nil {
		scan = func(rows *sql.Rows) error {
			answers = true
			return answer(rows)
		}
	}
	return e.onConn(ctx, x, func(x base.Executor) (again bool, err error) {
		err = e.runOn(ctx, x, op, args, scan)
		return !answers, err // scan must not see rows twice
	})
}

func (e *Engine) before(ctx context.Context, x base.Executor) error {
	if e.Before == nil {
		return nil
	}
	return e.Before(ctx, x)
}

// onConn runs f on x. On a *sql.DB it takes a connection, so that it can tell whether anything was sent: if not, and if f
// allows it, f is run again on another connection. So it is if the connection leads to a server that takes no writes: the pool
// would keep it for as long as it works.
func (e *Engine) onConn(ctx context.Context, x base.Executor, f func(base.Executor) (again bool, err error)) error {
	db, pool := x.(*sql.DB)
	if !pool {
		if _, callers := x.(*sql.Conn); callers && ctx.Err() != nil {
			return ctx.Err() // pgx would call the connection bad, and database/sql then waits for the end of a *sql.Tx on it
		}
		_, err := f(x)
		if own, ok := x.(OwnConn); ok && e.isReadOnly(err) {
			discard(own.Conn)
		}
		return err
	}
	for try := 0; ; try++ {
		conn, err := db.Conn(ctx)
		if err != nil {
			return fmt.Errorf("take a connection: %w", err)
		}
		again, err := e.onOwn(conn, f)
		if !again || try == badConnections || !e.isReadOnly(err) && !errors.Is(err, driver.ErrBadConn) || errors.Is(err, base.ErrUnknownOutcome) {
			return err
		}
	}
}

func (e *Engine) isReadOnly(err error) bool { return e.Dialect.Classify(err) == dialect.ErrorReadOnly }

func (e *Engine) runOn(ctx context.Context, x base.Executor, op Operation, args []any, scan func(*sql.Rows) error) error {
	ctx = kept.Keep(ctx)
	statements := e.operations[op]
	if len(statements) > 0 && statements[0].gate {
		if open, err := statements[0].ask(ctx, x, args); err != nil || !open {
			return err
		}
		statements = statements[1:]
	}
	if len(statements) == 1 {
		err := statements[0].run(ctx, x, args, scan)
		_, own := x.(OwnConn)
		if err != nil && ctx.Err() != nil && !e.readOnly[op] && (!own || e.Dialect.Traits().Procedures) {
			cutOff(x)
		}
		if commitsItself(x) && !e.readOnly[op] {
			err = unknown(err)
		}
		return err
	}
	return e.asOne(ctx, x, job{statements, args, scan})
}

// A job is an operation's statements with their arguments.
type job struct {
	statements preparedCall
	args       []any
	scan       func(*sql.Rows) error
}

// asOne runs jobs in one transaction: its own, or part of the caller's.
func (e *Engine) asOne(ctx context.Context, x base.Executor, jobs ...job) error {
	run := func(x base.Executor) error {
		for _, j := range jobs {
			if err := runThrough(ctx, x, j); err != nil {
				return err
			}
		}
		return nil
	}
	own, ok := x.(OwnConn)
	if !ok {
		return e.InSavepoint(ctx, x, run)
	}
	err := bracket(ctx, own, ownTransaction(e.Dialect.Traits()), func() error { return run(own) })
	if errors.Is(err, errRollback) {
		// The connection may still be inside the transaction: it must not go back to the pool.
		discard(own.Conn)
	}
	return err
}

// A Part is an operation with its argument, and what reads its rows.
type Part struct {
	Operation Operation
	Arg       any
	Scan      func(*sql.Rows) error
}

// Together runs operations as one, and not again after a lost conflict: as the procedure that does all of them, whose rows scan
// reads, or statement by statement in one transaction. There it calls reset before each try. A part without an argument is left
// out.
func (e *Engine) Together(ctx context.Context, x base.Executor, procedure Operation, reset func(), scan func(*sql.Rows) error, parts ...Part) error {
	args := make([]any, len(parts))
	jobs := make([]job, 0, len(parts))
	for i, p := range parts {
		if p.Arg == nil {
			args[i] = sql.NullString{} // with a type, as every server wants it
			continue
		}
		text, err := Encode(p.Arg)
		if err != nil {
			return fmt.Errorf("encode the argument of %s: %w", p.Operation, err)
		}
		args[i] = text
		jobs = append(jobs, job{e.operations[p.Operation], []any{text}, p.Scan})
	}
	ctx = kept.Keep(ctx)
	var err error
	if e.Dialect.Traits().Procedures {
		err = e.run(ctx, x, procedure, args, scan)
	} else {
		err = e.onConn(ctx, x, func(x base.Executor) (again bool, err error) {
			reset()
			return true, e.asOne(ctx, x, jobs...)
		})
	}
	if err != nil {
		return e.explain(procedure, err)
	}
	return nil
}

// runThrough runs the statements up to the first closed gate.
func runThrough(ctx context.Context, x base.Executor, j job) error {
	for _, s := range j.statements {
		if s.gate {
			if open, err := s.ask(ctx, x, j.args); err != nil || !open {
				return err
			}
			continue
		}
		if err := s.run(ctx, x, j.args, j.scan); err != nil {
			return err
		}
	}
	return nil
}

func (s statement) ask(ctx context.Context, x base.Executor, args []any) (open bool, err error) {
	err = s.run(ctx, x, args, func(rows *sql.Rows) error { return rows.Scan(&open) })
	return open, err
}

func (s statement) run(ctx context.Context, x base.Executor, args []any, scan func(*sql.Rows) error) error {
	return Query(ctx, x, s.text, args[:min(s.parameters, len(args))], scan)
}

// Query runs one statement to its end, through all its results, so that errors after the rows or in a later result are not
// lost. A nil scan means that it returns no rows.
func Query(ctx context.Context, x base.Executor, statement string, args []any, scan func(*sql.Rows) error) (err error) {
	if scan == nil {
		_, err := x.ExecContext(ctx, statement, args...)
		return err
	}
	rows, err := x.QueryContext(ctx, statement, args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for more := true; more; more = rows.NextResultSet() {
		for rows.Next() {
			if err := scan(rows); err != nil {
				return fmt.Errorf("read a row: %w", err)
			}
		}
	}
	return rows.Err()
}
