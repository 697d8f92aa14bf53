package join_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/faults"
	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/join"
)

// A settle that ends in the middle: a message counts if it has ended, and not otherwise.

// A real deadlock, between a caller that has locked a join and then wants a message, and a settle that has the message and
// then wants the join. The settle loses, is run again, and counts once.
func TestTrap_ADeadlockOverAJoinIsRetriedAndCountsOnce(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Needs(suite.ConcurrentWriters, suite.SkipLocked)
		c := f.Joins()
		id, _ := f.StartWith(c, "step", 2)
		for i, held := range f.Claim("step") {
			conn, err := f.DB.Conn(f.Context())
			f.NoError(err)
			// The caller never is the victim, and the settle looks for the deadlock once the circle is closed.
			f.ExecOn(conn, "%s", map[string]string{
				testdb.Postgres: "SET deadlock_timeout = '1h'", testdb.SQLServer: "SET DEADLOCK_PRIORITY HIGH"}[f.DB.Name])
			l := f.Lane("")
			if f.DB.Name == testdb.Postgres {
				_, err := l.DB.ExecContext(f.Context(), "SET deadlock_timeout = '2s'")
				f.NoError(err)
			}
			tx, err := conn.BeginTx(f.Context(), nil)
			f.NoError(err)
			defer func() { _ = tx.Rollback() }() // for a failure before the commit
			f.WaitOn(c, tx, id, "next")
			settling := l.Settle(suite.Settled(outbox.Ack, held)...)
			l.Blocked(settling)
			f.ExecOn(tx, "UPDATE {outbox_state} SET {flags} = {flags} WHERE {seq} = %d", held.Receipt.Seq) // closes the circle
			f.NoError(tx.Commit())
			f.NoError(conn.Close())
			l.Ended(settling)
			f.Counted(id, join.Status(i), i+1, 0, 1-i) // the second ends it as completed
		}
	})
}

// crashing is a join of two steps, of which one is still held, with a wait.
type crashing struct {
	*fixture
	join   join.ID
	last   outbox.Claimed
	waiter outbox.MessageID
}

func (f *fixture) crashing() *crashing {
	f.T.Helper()
	id, last := f.lastStep()
	return &crashing{f, id, last, f.WaitOn(f.Joins(), nil, id, "next")}
}

// untouched asserts that nothing of a settle is left.
func (c *crashing) untouched(when string) {
	c.T.Helper()
	c.Counted(c.join, join.Pending, 1, 0, 1)
	c.Equal(int(outbox.InProgress), c.Row(c.last.ID).Status, when)
	c.False(c.Row(c.waiter).IsDue, when)
}

// settles asserts that the settle is done, once, however often it is called.
func (c *crashing) settles(o *outbox.Outbox, db outbox.Executor) {
	c.T.Helper()
	refused, err := o.Settle(c.Context(), db, suite.Settled(outbox.Ack, c.last))
	c.NoError(err)
	c.Empty(refused)
	refused, err = o.Settle(c.Context(), db, suite.Settled(outbox.Ack, c.last))
	c.NoError(err)
	c.Len(refused, 1)
	c.Counted(c.join, join.Completed, 2, 0, 0)
	c.True(c.Row(c.waiter).IsDue)
}

// Each statement that is sent fails in turn.
func TestTrap_ASettleThatIsStoppedBeforeAnyStatementCountsNothing(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		for stop := 1; ; stop++ {
			c := f.crashing()
			var n atomic.Int32
			var armed atomic.Bool
			armed.Store(true)
			pool := faults.Open(t, f.DB, faults.Hooks{Before: func(_ context.Context, s faults.Statement) error {
				if armed.Load() && !strings.HasPrefix(s.Text, faults.Rollback) && int(n.Add(1)) == stop {
					return &faults.Error{Number: 50000, State: "XX000", Result: 10}
				}
				return nil
			}})
			o := f.NewOutbox(pool)
			_, err := o.Settle(f.Context(), pool, suite.Settled(outbox.Ack, c.last))
			armed.Store(false)
			if int(n.Load()) < stop {
				f.NoError(err)
				f.Greater(stop, 1)
				return
			}
			f.Error(err)
			c.untouched(fmt.Sprintf("stopped before statement %d", stop))
			c.settles(o, pool)
		}
	})
}

// And each that a procedure runs: the database refuses what it writes, table by table.
func TestTrap_ASettleThatTheDatabaseStopsCountsNothing(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.crashing()
		for _, refused := range []struct{ name, table, condition string }{
			{"the message ends", f.SQL("{outbox_state}"), f.SQL("{status} <> 2 OR {seq} <> %d", c.last.Receipt.Seq)},
			{"the member ends", f.SQL("{member}"), f.SQL("{status} = 0 OR %s <> '%s'", f.SQL("{step}"), c.last.ID)},
			{"the join counts", f.SQL("{join}"), f.SQL("{completed_steps} < 2")},
			{"the join ends", f.SQL("{join}"), f.SQL("{status} = 0")},
			{"the wait is woken", f.SQL("{outbox_state}"), f.SQL("{topic_key} <> %d OR {next_attempt_at} > %s", testdb.TopicKey(join.DefaultWaitTopic), f.instant(f.Now().Add(time.Minute)))},
		} {
			allow := f.refuse(refused.table, refused.condition)
			_, err := f.Outbox.Settle(f.Context(), f.DB.DB, suite.Settled(outbox.Ack, c.last))
			f.ErrorContains(err, "refused", refused.name)
			f.False(outbox.IsRetryable(err), "%s: %v", refused.name, err)
			allow()
			c.untouched(refused.name)
		}
		c.settles(f.Outbox, f.DB.DB)
	})
}

// instant is a time as the database writes it.
func (f *fixture) instant(at time.Time) string {
	switch f.DB.Name {
	case testdb.SQLite:
		return fmt.Sprint(at.UnixMilli())
	case testdb.Postgres:
		return "'" + at.Format(time.RFC3339) + "'::timestamptz"
	default:
		return "CAST('" + at.Format("2006-01-02T15:04:05") + "' AS DATETIME2(3))"
	}
}

// refuse lets the database refuse rows of a table for which a condition does not hold, until allow is called. It holds for
// those that are there.
func (f *fixture) refuse(table, condition string) (allow func()) {
	f.T.Helper()
	if f.DB.Name == testdb.SQLite {
		for _, column := range []string{"topic_key", "status", "seq", "message_id", "completed_steps", "next_attempt_at"} {
			condition = strings.ReplaceAll(condition, column, "NEW."+column)
		}
		_, name, _ := strings.Cut(table, ".") // a trigger is in the schema of its table
		f.Exec("CREATE TRIGGER refused BEFORE UPDATE ON %s WHEN NOT (%s) BEGIN SELECT RAISE(ABORT, 'refused'); END", name, condition)
		return func() { f.Exec("DROP TRIGGER refused") }
	}
	f.Exec("ALTER TABLE %s ADD CONSTRAINT refused CHECK (%s)", table, condition)
	return func() { f.Exec("ALTER TABLE %s DROP CONSTRAINT refused", table) }
}

// The connection is killed when the settle has ended the message and its step, and waits for the join.
func TestTrap_ASettleWhoseConnectionIsKilledCountsNothing(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Needs(suite.ConcurrentWriters, killsConnections)
		c := f.crashing()
		tx, err := f.DB.BeginTx(f.Context(), nil)
		f.NoError(err)
		defer func() { _ = tx.Rollback() }() // for a failure before it is rolled back below
		f.ExecOn(tx, "UPDATE %s SET {completed_steps} = {completed_steps} WHERE {join_id} = '%s'", f.SQL("{join}"), c.join)
		l := f.Lane("")
		settling := l.Settle(suite.Settled(outbox.Ack, c.last)...)
		l.Blocked(settling)
		f.Exec(map[string]string{testdb.Postgres: "SELECT pg_terminate_backend(%d)", testdb.SQLServer: "KILL %d"}[f.DB.Name], l.Session)
		err, _ = suite.Take(f.T, settling, "the end of the call")
		f.Error(err)
		f.NoError(tx.Rollback())
		c.untouched("killed")
		c.settles(l.Outbox, l.DB)
	})
}

// killsConnections: one connection can end another.
var killsConnections = suite.NewCapability("a way to kill a connection", func(ctx context.Context, db *testdb.DB) (string, error) {
	if db.Name == testdb.SQLite {
		return "there are no connections but those of the process", nil
	}
	victim, err := db.Conn(ctx)
	if err != nil {
		return "", err
	}
	defer func() { _ = victim.Close() }() // it is gone
	session := map[string]string{testdb.Postgres: "SELECT pg_backend_pid()", testdb.SQLServer: "SELECT @@SPID"}[db.Name]
	kill := map[string]string{testdb.Postgres: "SELECT pg_terminate_backend(%d)", testdb.SQLServer: "KILL %d"}[db.Name]
	var id int
	if err := victim.QueryRowContext(ctx, session).Scan(&id); err != nil {
		return "", err
	}
	if _, err := db.ExecContext(ctx, fmt.Sprintf(kill, id)); err != nil {
		return fmt.Sprintf("%s: %v", kill, err), nil
	}
	if victim.PingContext(ctx) == nil {
		return "", errors.New("a connection lives on although it was killed")
	}
	return "", nil
})
