package conformance

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/faults"
	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/join"
	"github.com/incursa/watermill-outbox/middleware"
)

// What the traps of joins have in common: the tables as they are, and workers of which it is known that they wait for a lock.

// A tally is how a join stands by SQL of the test's own: its counters, and how many of its members say the same.
type tally struct {
	status             join.Status
	completed, failed  int // as counted
	done, dead, undone int // members
}

func (f *fixture) tally(id join.ID) (t tally) {
	f.t.Helper()
	statement := f.sql("SELECT {status}, {completed_steps}, {failed_steps} FROM %s WHERE {join_id} = '%s'", f.sql("{join}"), id)
	f.NoError(f.db.QueryRowContext(f.ctx(), statement).Scan(&t.status, &t.completed, &t.failed), statement)
	statement = f.sql("SELECT COUNT(CASE WHEN {status} = 1 THEN 1 END), COUNT(CASE WHEN {status} = 2 THEN 1 END), "+
		"COUNT(CASE WHEN {status} = 0 THEN 1 END) FROM %s WHERE {join_id} = '%s'", f.sql("{member}"), id)
	f.NoError(f.db.QueryRowContext(f.ctx(), statement).Scan(&t.done, &t.dead, &t.undone), statement)
	return t
}

// counted asserts the counters of a join, and that they are those of its members, of which so many are left.
func (f *fixture) counted(id join.ID, status join.Status, completed, failed, undone int) {
	f.t.Helper()
	f.Equal(tally{status, completed, failed, completed, failed, undone}, f.tally(id), "the join %v", id)
}

// coordinator returns the coordinator of the fixture's outbox on another pool.
func (f *fixture) coordinator(db *sql.DB, options ...func(*join.Config)) *join.Coordinator {
	f.t.Helper()
	config := join.Config{Dialect: f.config.Dialect, Schema: f.config.Schema, Table: f.config.Table}
	for _, option := range options {
		option(&config)
	}
	c, err := join.NewCoordinator(db, config, nil)
	f.NoError(err)
	return c
}

// waitOn has a message wait for a join that continues on a topic.
func (f *fixture) waitOn(c *join.Coordinator, x outbox.Executor, id join.ID, topic string) outbox.MessageID {
	f.t.Helper()
	waiter, err := c.EnqueueWait(f.ctx(), x, join.Wait{Join: id, OnComplete: join.Continuation{Topic: topic}})
	f.NoError(err)
	return waiter
}

// serveWaits runs a router with the handler of waits until stop is called, or the test ends.
func (f *fixture) serveWaits(c *join.Coordinator, s message.Subscriber) (stop func()) {
	f.t.Helper()
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: patience}, nil)
	f.NoError(err)
	router.AddMiddleware(middleware.Outcome)
	c.AddWaitHandler(router, s)
	stopped := make(chan error, 1)
	go func() { stopped <- router.Run(context.WithoutCancel(f.ctx())) }()
	take(f, router.Running(), "the router")
	stop = sync.OnceFunc(func() {
		if err := errors.Join(router.Close(), <-stopped); err != nil {
			f.t.Errorf("closing the router: %v", err)
		}
	})
	f.t.Cleanup(stop)
	return stop
}

// continuations is how many messages there are on a topic, whatever became of them.
func (f *fixture) continuations(topic string) int {
	f.t.Helper()
	return int(f.number("SELECT COUNT(*) FROM {all} WHERE {topic} = '%s'", topic))
}

// defaultLevels are isolation levels that a connection may have by default. On SQL Server the procedures choose their own.
func (f *fixture) defaultLevels() []string {
	if f.db.Name == testdb.Postgres {
		return []string{"READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"}
	}
	return []string{""}
}

// slow says whether the server takes so long for a call that a test does fewer of them.
func (f *fixture) slow() bool {
	f.t.Helper()
	started := time.Now()
	const calls = 5
	for range calls {
		_, err := f.outbox.ReapExpired(f.ctx())
		f.NoError(err)
	}
	return time.Since(started) > calls*10*time.Millisecond
}

// A lane is a worker with one connection. It can be stopped after a statement, and the database is asked whether it waits
// for somebody's lock.
type lane struct {
	f       *fixture
	db      *sql.DB
	outbox  *outbox.Outbox
	joins   *join.Coordinator
	session int           // of the connection, as the database names it
	sent    chan struct{} // has one if a statement was sent since blocked was told to look
	stops   chan *stop    // has one if the lane is to stop
}

// A stop is a place at which a lane waits until it is let go.
type stop struct {
	after   string // part of a statement, in lower case
	reached chan struct{}
	leave   chan struct{}
}

// lane returns a worker whose connection has a default isolation level, or none of its own.
func (f *fixture) lane(level string) *lane {
	f.t.Helper()
	l := &lane{f: f, sent: make(chan struct{}, 1), stops: make(chan *stop, 1)}
	l.db = faults.Open(f.t, f.db, faults.Hooks{Before: l.before, After: l.after})
	l.db.SetMaxOpenConns(1)
	if level != "" {
		_, err := l.db.ExecContext(f.ctx(), "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL "+level)
		f.NoError(err)
	}
	if session := map[string]string{testdb.Postgres: "SELECT pg_backend_pid()", testdb.SQLServer: "SELECT @@SPID"}[f.db.Name]; session != "" {
		f.NoError(l.db.QueryRowContext(f.ctx(), session).Scan(&l.session))
	}
	l.outbox, l.joins = f.newOutbox(l.db), f.coordinator(l.db)
	return l
}

func (l *lane) before(context.Context, faults.Statement) error {
	select {
	case l.sent <- struct{}{}:
	default:
	}
	return nil
}

func (l *lane) after(ctx context.Context, s faults.Statement, err error) {
	var at *stop
	select {
	case at = <-l.stops:
	default:
		return
	}
	if err != nil || !strings.Contains(strings.ToLower(s.Text), at.after) {
		l.stops <- at
		return
	}
	close(at.reached)
	select {
	case <-at.leave:
	case <-ctx.Done():
	}
}

// stopAfterLook lets the lane go no further than its next look at a join that a message waits for.
func (l *lane) stopAfterLook() *stop {
	at := &stop{"join_wait", make(chan struct{}), make(chan struct{})}
	if l.f.db.Name == testdb.SQLite {
		at.after = "j.fail_fast or" // the last of several statements
	}
	l.stops <- at
	return at
}

// settle settles in the background; refused receipts are an error.
func (l *lane) settle(settlements ...outbox.Settlement) <-chan error {
	return l.run(func() error { return l.settleOn(l.db, settlements...) })
}

func (l *lane) settleOn(x outbox.Executor, settlements ...outbox.Settlement) error {
	refused, err := l.outbox.Settle(l.f.ctx(), x, settlements)
	if err == nil && len(refused) > 0 {
		err = fmt.Errorf("refused: %v", refused)
	}
	return err
}

// run runs a call in the background.
func (l *lane) run(call func() error) <-chan error {
	select {
	case <-l.sent:
	default:
	}
	result := make(chan error, 1)
	go func() { result <- call() }()
	return result
}

// blocked waits until a call of the lane waits for somebody's lock; it must not end before. Where there is one writer, the
// others wait for it from their first statement on.
func (l *lane) blocked(result <-chan error) {
	l.f.t.Helper()
	if l.f.db.Name == testdb.SQLite {
		take(l.f, l.sent, "the first statement")
		return
	}
	query := map[string]string{
		testdb.Postgres:  "SELECT COUNT(*) FROM pg_locks WHERE pid = %d AND NOT granted",
		testdb.SQLServer: "SELECT COUNT(*) FROM sys.sysprocesses WHERE spid = %d AND blocked <> 0 AND (lastwaittype LIKE 'LCK%%' OR RTRIM(lastwaittype) = 'Lock')",
	}[l.f.db.Name]
	l.f.Eventually(func() bool { return len(result) > 0 || l.f.number(query, l.session) > 0 }, patience, 2*time.Millisecond)
	l.f.Empty(result, "it ended without waiting for the lock")
}

// ended waits for the result of a call.
func (l *lane) ended(result <-chan error) {
	l.f.t.Helper()
	err, _ := take(l.f, result, "the end of the call")
	l.f.NoError(err)
}

// inTx runs f in a transaction as a caller does who heeds IsRetryable: again, when it lost a conflict.
func (l *lane) inTx(call func(ctx context.Context, tx *sql.Tx) error) error {
	for {
		err := outbox.InTx(l.f.ctx(), l.db, call)
		if !outbox.IsRetryable(err) {
			return err
		}
	}
}

// separateProcedures: what a procedure in one transaction keeps in table variables holds up no procedure in another.
var separateProcedures = &capability{"procedures that wait for nothing but rows", func(ctx context.Context, db *testdb.DB) (string, error) {
	if db.Name != testdb.SQLServer {
		return "", nil
	}
	return withProbe(ctx, db, func(probe string, holder, other *sql.Conn) (lacks string, err error) {
		create, drop := "CREATE PROCEDURE "+probe+"_v AS BEGIN SET NOCOUNT ON; DECLARE @A TABLE (id INT NOT NULL PRIMARY KEY); INSERT INTO @A (id) VALUES (1); END",
			"DROP PROCEDURE "+probe+"_v"
		if _, err := other.ExecContext(ctx, create); err != nil {
			return "", err
		}
		defer func() {
			_, dropErr := other.ExecContext(context.WithoutCancel(ctx), drop)
			err = errors.Join(err, dropErr)
		}()
		return probeWhileLocked(ctx, db, holder, "EXEC "+probe+"_v", func(ctx context.Context) (string, error) {
			_, err := other.ExecContext(ctx, "EXEC "+probe+"_v")
			return "", err
		})
	})
}}
