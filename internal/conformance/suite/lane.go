package suite

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/faults"
	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/join"
)

// A Tally is how a join stands by SQL of the test's own: its counters, and how many of its members say the same.
type Tally struct {
	Status             join.Status
	completed, failed  int // as counted
	done, dead, undone int // members
}

// Tally reads how a join stands.
func (f *Fixture) Tally(id join.ID) (t Tally) {
	f.T.Helper()
	statement := f.SQL("SELECT {status}, {completed_steps}, {failed_steps} FROM %s WHERE {join_id} = '%s'", f.SQL("{join}"), id)
	f.NoError(f.DB.QueryRowContext(f.Context(), statement).Scan(&t.Status, &t.completed, &t.failed), statement)
	statement = f.SQL("SELECT COUNT(CASE WHEN {status} = 1 THEN 1 END), COUNT(CASE WHEN {status} = 2 THEN 1 END), "+
		"COUNT(CASE WHEN {status} = 0 THEN 1 END) FROM %s WHERE {join_id} = '%s'", f.SQL("{member}"), id)
	f.NoError(f.DB.QueryRowContext(f.Context(), statement).Scan(&t.done, &t.dead, &t.undone), statement)
	return t
}

// Counted asserts the counters of a join, and that they are those of its members, of which so many are left.
func (f *Fixture) Counted(id join.ID, status join.Status, completed, failed, undone int) {
	f.T.Helper()
	f.Equal(Tally{status, completed, failed, completed, failed, undone}, f.Tally(id), "the join %v", id)
}

// Coordinator returns the coordinator of the fixture's outbox on another pool.
func (f *Fixture) Coordinator(db *sql.DB, options ...func(*join.Config)) *join.Coordinator {
	f.T.Helper()
	config := join.Config{Dialect: f.Config.Dialect, Schema: f.Config.Schema, Table: f.Config.Table}
	for _, option := range options {
		option(&config)
	}
	c, err := join.NewCoordinator(db, config, nil)
	f.NoError(err)
	return c
}

// WaitOn has a message wait for a join that continues on a topic.
func (f *Fixture) WaitOn(c *join.Coordinator, x outbox.Executor, id join.ID, topic string) outbox.MessageID {
	f.T.Helper()
	waiter, err := c.EnqueueWait(f.Context(), x, join.Wait{Join: id, OnComplete: join.Continuation{Topic: topic}})
	f.NoError(err)
	return waiter
}

// Slow says whether the server takes so long for a call that a test does fewer of them.
func (f *Fixture) Slow() bool {
	f.T.Helper()
	started := time.Now()
	const calls = 5
	for range calls {
		_, err := f.Outbox.ReapExpired(f.Context())
		f.NoError(err)
	}
	return time.Since(started) > calls*10*time.Millisecond
}

// A Lane is a worker with one connection. It can be stopped after a statement, and the database is asked whether it waits
// for somebody's lock.
type Lane struct {
	f       *Fixture
	DB      *sql.DB
	Outbox  *outbox.Outbox
	Joins   *join.Coordinator
	Session int           // of the connection, as the database names it
	sent    chan struct{} // has one if a statement was sent since blocked was told to look
	stops   chan *stop    // has one if the lane is to stop
}

// A stop is a place at which a lane waits until it is let go.
type stop struct {
	after   string // part of a statement, in lower case
	Reached chan struct{}
	Leave   chan struct{}
}

// Lane returns a worker whose connection has a default isolation level, or none of its own.
func (f *Fixture) Lane(level string) *Lane {
	f.T.Helper()
	l := &Lane{f: f, sent: make(chan struct{}, 1), stops: make(chan *stop, 1)}
	l.DB = faults.Open(f.T, f.DB, faults.Hooks{Before: l.before, After: l.after})
	l.DB.SetMaxOpenConns(1)
	if level != "" {
		_, err := l.DB.ExecContext(f.Context(), "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL "+level)
		f.NoError(err)
	}
	if session := map[string]string{testdb.Postgres: "SELECT pg_backend_pid()", testdb.SQLServer: "SELECT @@SPID"}[f.DB.Name]; session != "" {
		f.NoError(l.DB.QueryRowContext(f.Context(), session).Scan(&l.Session))
	}
	l.Outbox, l.Joins = f.NewOutbox(l.DB), f.Coordinator(l.DB)
	return l
}

func (l *Lane) before(context.Context, faults.Statement) error {
	select {
	case l.sent <- struct{}{}:
	default:
	}
	return nil
}

func (l *Lane) after(ctx context.Context, s faults.Statement, err error) {
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
	close(at.Reached)
	select {
	case <-at.Leave:
	case <-ctx.Done():
	}
}

// StopAfterLook lets the lane go no further than its next look at a join that a message waits for.
func (l *Lane) StopAfterLook() *stop {
	at := &stop{"join_wait", make(chan struct{}), make(chan struct{})}
	if l.f.DB.Name == testdb.SQLite {
		at.after = "j.fail_fast or" // the last of several statements
	}
	l.stops <- at
	return at
}

// Settle settles in the background; refused receipts are an error.
func (l *Lane) Settle(settlements ...outbox.Settlement) <-chan error {
	return l.Run(func() error { return l.SettleOn(l.DB, settlements...) })
}

// SettleOn settles at once; refused receipts are an error.
func (l *Lane) SettleOn(x outbox.Executor, settlements ...outbox.Settlement) error {
	refused, err := l.Outbox.Settle(l.f.Context(), x, settlements)
	if err == nil && len(refused) > 0 {
		err = fmt.Errorf("refused: %v", refused)
	}
	return err
}

// Run runs a call in the background.
func (l *Lane) Run(call func() error) <-chan error {
	select {
	case <-l.sent:
	default:
	}
	result := make(chan error, 1)
	go func() { result <- call() }()
	return result
}

// Blocked waits until a call of the lane waits for somebody's lock; it must not end before. Where there is one writer, the
// others wait for it from their first statement on.
func (l *Lane) Blocked(result <-chan error) {
	l.f.T.Helper()
	if l.f.DB.Name == testdb.SQLite {
		Take(l.f.T, l.sent, "the first statement")
		return
	}
	query := map[string]string{
		testdb.Postgres:  "SELECT COUNT(*) FROM pg_locks WHERE pid = %d AND NOT granted",
		testdb.SQLServer: "SELECT COUNT(*) FROM sys.sysprocesses WHERE spid = %d AND blocked <> 0 AND (lastwaittype LIKE 'LCK%%' OR RTRIM(lastwaittype) = 'Lock')",
	}[l.f.DB.Name]
	l.f.Eventually(func() bool { return len(result) > 0 || l.f.Number(query, l.Session) > 0 }, Patience, 2*time.Millisecond)
	l.f.Empty(result, "it ended without waiting for the lock")
}

// Ended waits for the result of a call.
func (l *Lane) Ended(result <-chan error) {
	l.f.T.Helper()
	err, _ := Take(l.f.T, result, "the end of the call")
	l.f.NoError(err)
}

// InTx runs f in a transaction as a caller does who heeds IsRetryable: again, when it lost a conflict.
func (l *Lane) InTx(call func(ctx context.Context, tx *sql.Tx) error) error {
	for {
		err := outbox.InTx(l.f.Context(), l.DB, call)
		if !outbox.IsRetryable(err) {
			return err
		}
	}
}
