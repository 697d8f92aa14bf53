package outbox

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
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/incursa/watermill-outbox/internal/dialect"
	"github.com/incursa/watermill-outbox/internal/flow"
	"github.com/incursa/watermill-outbox/internal/kept"
)

// engine runs the operations of one outbox on any database: an operation has one JSON argument and one result.
// It holds no connection and is safe for concurrent use.
type engine struct {
	dialect    Dialect
	names      names
	operations map[operation]preparedCall
}

// An operation is the name of a file in the dialect's operations folder, without its extension.
type operation string

const (
	opEnqueue    operation = "outbox_enqueue"
	opEnqueueOne operation = "outbox_enqueue_one"
	opWork       operation = "outbox_work"
	opClaim      operation = "outbox_claim"
	opSettle     operation = "outbox_settle"
	opRenew      operation = "outbox_renew"
	opReap       operation = "outbox_reap"
	opRequeue    operation = "outbox_requeue"
	opPurge      operation = "outbox_purge"
	opTopics     operation = "outbox_topics"
	opFailed     operation = "outbox_failed"
	opGet        operation = "outbox_get"

	opStreamEnqueue operation = "outbox_stream_enqueue"
	opStreamList    operation = "outbox_stream_list"
	opStreamResume  operation = "outbox_stream_resume"
	opStreamTake    operation = "outbox_stream_take"
	opStreamTopics  operation = "outbox_stream_topics"

	opJoinPurge  operation = "outbox_join_purge"
	opEntryPurge operation = "outbox_entry_purge"

	opLogEnqueue operation = "outbox_log_enqueue"
	opLogStamp   operation = "outbox_log_stamp"
	opLogLease   operation = "outbox_log_lease"
	opLogRead    operation = "outbox_log_read"
	opLogPurge   operation = "outbox_log_purge"
	opLogForget  operation = "outbox_log_forget"

	opEventAppend    operation = "outbox_event_append"
	opEventAppendOne operation = "outbox_event_append_one"

	opLogDeadAdd     operation = "outbox_log_dead_add"
	opLogDeadList    operation = "outbox_log_dead_list"
	opLogDeadRequeue operation = "outbox_log_dead_requeue"
	opLogDeadDiscard operation = "outbox_log_dead_discard"
)

// An operation in its own transaction is run again this often after losing a conflict, which takes some seconds, before the
// error is returned: many workers on a database that is serializable by default lose many. An operation that was not sent,
// because the pool's connection turned out to be broken, is sent on another.
const (
	conflictRetries  = 60
	conflictPauseMax = 100 * time.Millisecond
	badConnections   = 3
)

// readOnly are the operations that commit nothing.
var readOnly = map[operation]bool{
	opTopics: true, opFailed: true, opGet: true, opLogRead: true, opLogDeadList: true, opStreamList: true, opStreamTopics: true,
	"outbox_event_read": true, "outbox_event_read_all": true, "outbox_event_wait": true,
	"outbox_join_list": true, "outbox_join_members": true, "outbox_entry_get": true,
}

func newEngine(d Dialect, schema, table string) (*engine, error) {
	n, err := newNames(d, schema, table)
	if err != nil {
		return nil, err
	}
	e := &engine{dialect: d, names: n, operations: map[operation]preparedCall{}}
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
		e.operations[operation(name)] = n.prepare(d.Call(string(text)))
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

func (n names) prepare(c dialect.Call) preparedCall {
	var prepared preparedCall
	for _, s := range c {
		prepared = append(prepared, statement{n.apply(s.Text), n.parameters(s.Text), s.Gate})
	}
	return prepared
}

// parameters is how many arguments a statement takes: a procedure takes all of them, any other statement those that it marks,
// because drivers refuse more. It reads the text before the outbox's names, which may contain anything, are put in.
func (n names) parameters(text string) int {
	if n.dialect.Traits().Procedures {
		return math.MaxInt
	}
	highest := 0
	for _, mark := range marked.FindAllStringSubmatch(text, -1) {
		number, _ := strconv.Atoi(mark[1]) // of digits
		highest = max(highest, number)
	}
	return highest
}

var marked = regexp.MustCompile(`\?(\d+)`)

// call runs an operation on x with its argument and, if the operation takes them, payloads, and returns its rows as scan
// reads them. On a *sql.DB the operation has its own transaction, and is run again if it loses a conflict.
func call[Row any](ctx context.Context, e *engine, x Executor, op operation, arg any, payloads []byte, scan func(*sql.Rows, *Row) error) ([]Row, error) {
	text, err := encodeArgument(arg)
	if err != nil {
		return nil, fmt.Errorf("encode the argument of %s: %w", op, err)
	}
	args := []any{text}
	if payloads != nil {
		args = append(args, payloads)
	}
	if scan == nil {
		return nil, e.do(ctx, x, op, args)
	}
	return callWith(ctx, e, x, op, args, scan)
}

// callWith is call for an operation with typed parameters.
func callWith[Row any](ctx context.Context, e *engine, x Executor, op operation, args []any, scan func(*sql.Rows, *Row) error) ([]Row, error) {
	var result []Row
	err := e.retry(ctx, x, func() error {
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

// do runs an operation that returns no rows.
func (e *engine) do(ctx context.Context, x Executor, op operation, args []any) error {
	if err := e.retry(ctx, x, func() error { return e.run(ctx, x, op, args, nil) }); err != nil {
		return e.explain(op, err)
	}
	return nil
}

// retry runs f again while it loses conflicts, if the transaction is the outbox's own. Callers retry theirs, and what may
// have been committed is never run again.
func (e *engine) retry(ctx context.Context, x Executor, f func() error) error {
	for try := 0; ; try++ {
		err := f()
		again := ours(x) && try < conflictRetries && e.dialect.Classify(err) == dialect.ErrorRetryable && !errors.Is(err, ErrUnknownOutcome)
		if !again || flow.Pause(ctx, rand.N(min(time.Millisecond<<min(try, 10), conflictPauseMax))) != nil {
			return err
		}
	}
}

func (e *engine) explain(op operation, err error) error {
	switch e.dialect.Classify(err) {
	case dialect.ErrorSchema:
		return fmt.Errorf("%s on %s: %w: %w", op, e.names.qualified(e.dialect.Traits().Table), ErrSchema, err)
	case dialect.ErrorDuplicate:
		return fmt.Errorf("%s: %w: %w", op, ErrDuplicateID, err)
	default:
		return fmt.Errorf("%s: %w", op, err)
	}
}

// encodeArgument returns the value as JSON with no more escapes than necessary.
func encodeArgument(arg any) (string, error) {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(arg)
	return strings.TrimSuffix(b.String(), "\n"), err
}

func (e *engine) run(ctx context.Context, x Executor, op operation, args []any, scan func(*sql.Rows) error) error {
	if err := flushScope(ctx, x); err != nil {
		return err
	}
	answers := false
	if answer := scan; answer != nil {
		scan = func(rows *sql.Rows) error {
			answers = true
			return answer(rows)
		}
	}
	return onConn(ctx, x, func(x Executor) (again bool, err error) {
		err = e.runOn(ctx, x, op, args, scan)
		return !answers, err // scan must not see rows twice
	})
}

// onConn runs f on x. On a *sql.DB it takes a connection, so that it can tell whether anything was sent: if not, and if f
// allows it, f is run again on another connection.
func onConn(ctx context.Context, x Executor, f func(Executor) (again bool, err error)) error {
	db, pool := x.(*sql.DB)
	if !pool {
		_, err := f(x)
		return err
	}
	for try := 0; ; try++ {
		conn, err := db.Conn(ctx)
		if err != nil {
			return fmt.Errorf("take a connection: %w", err)
		}
		again, err := f(ownConn{conn})
		_ = conn.Close() // returns it to the pool; its only error is that it was already closed
		if !again || try == badConnections || !errors.Is(err, driver.ErrBadConn) || errors.Is(err, ErrUnknownOutcome) {
			return err
		}
	}
}

func (e *engine) runOn(ctx context.Context, x Executor, op operation, args []any, scan func(*sql.Rows) error) error {
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
		if err != nil && ctx.Err() != nil && e.dialect.Traits().Procedures && !readOnly[op] {
			cutOff(x)
		}
		if commitsItself(x) && !readOnly[op] {
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
func (e *engine) asOne(ctx context.Context, x Executor, jobs ...job) error {
	run := func(x Executor) error {
		for _, j := range jobs {
			if err := runThrough(ctx, x, j); err != nil {
				return err
			}
		}
		return nil
	}
	own, ok := x.(ownConn)
	if !ok {
		return e.inSavepoint(ctx, x, run)
	}
	t := transaction{begin: e.dialect.Traits().Begin, end: "COMMIT", rollback: "ROLLBACK", commits: true}
	err := bracket(ctx, own, t, func() error { return run(own) })
	if errors.Is(err, errRollback) {
		// The connection may still be inside the transaction: it must not go back to the pool.
		discard(own.Conn)
	}
	return err
}

// runThrough runs the statements up to the first closed gate.
func runThrough(ctx context.Context, x Executor, j job) error {
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

func (s statement) ask(ctx context.Context, x Executor, args []any) (open bool, err error) {
	err = s.run(ctx, x, args, func(rows *sql.Rows) error { return rows.Scan(&open) })
	return open, err
}

func (s statement) run(ctx context.Context, x Executor, args []any, scan func(*sql.Rows) error) error {
	return query(ctx, x, s.text, args[:min(s.parameters, len(args))], scan)
}

// query runs one statement to its end, through all its results, so that errors after the rows or in a later result are not
// lost. A nil scan means that it returns no rows.
func query(ctx context.Context, x Executor, statement string, args []any, scan func(*sql.Rows) error) (err error) {
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
