package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/faults"
	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/join"
)

// A settle that ends in the middle: a message counts if it has ended, and not otherwise.

// A real deadlock, between a caller that has locked a join and then wants a message, and a settle that has the message and
// then wants the join. The settle loses, is run again, and counts once.
func TestTrap_ADeadlockOverAJoinIsRetriedAndCountsOnce(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.needs(concurrentWriters, skipLocked)
		c := f.joins()
		id, _ := f.startWith(c, "step", 2)
		for i, held := range f.claim("step") {
			conn, err := f.db.Conn(f.ctx())
			f.NoError(err)
			// The caller never is the victim, and the settle looks for the deadlock once the circle is closed.
			f.execOn(conn, "%s", map[string]string{
				testdb.Postgres: "SET deadlock_timeout = '1h'", testdb.SQLServer: "SET DEADLOCK_PRIORITY HIGH"}[f.db.Name])
			l := f.lane("")
			if f.db.Name == testdb.Postgres {
				_, err := l.db.ExecContext(f.ctx(), "SET deadlock_timeout = '2s'")
				f.NoError(err)
			}
			tx, err := conn.BeginTx(f.ctx(), nil)
			f.NoError(err)
			defer func() { _ = tx.Rollback() }() // for a failure before the commit
			f.waitOn(c, tx, id, "next")
			settling := l.settle(settled(outbox.Ack, held)...)
			l.blocked(settling)
			f.execOn(tx, "UPDATE {outbox_state} SET {flags} = {flags} WHERE {seq} = %d", held.Receipt.Seq) // closes the circle
			f.NoError(tx.Commit())
			f.NoError(conn.Close())
			l.ended(settling)
			f.counted(id, join.Status(i), i+1, 0, 1-i) // the second ends it as completed
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
	f.t.Helper()
	id, last := f.lastStep()
	return &crashing{f, id, last, f.waitOn(f.joins(), nil, id, "next")}
}

// untouched asserts that nothing of a settle is left.
func (c *crashing) untouched(when string) {
	c.t.Helper()
	c.Equal(tally{join.Pending, 1, 0, 1, 0, 1}, c.tally(c.join), when)
	c.Equal(int(outbox.InProgress), c.row(c.last.ID).status, when)
	c.False(c.row(c.waiter).isDue, when)
}

// settles asserts that the settle is done, once, however often it is called.
func (c *crashing) settles(o *outbox.Outbox, db outbox.Executor) {
	c.t.Helper()
	refused, err := o.Settle(c.ctx(), db, settled(outbox.Ack, c.last))
	c.NoError(err)
	c.Empty(refused)
	refused, err = o.Settle(c.ctx(), db, settled(outbox.Ack, c.last))
	c.NoError(err)
	c.Len(refused, 1)
	c.Equal(tally{join.Completed, 2, 0, 2, 0, 0}, c.tally(c.join))
	c.True(c.row(c.waiter).isDue)
}

// Each statement that is sent fails in turn.
func TestTrap_ASettleThatIsStoppedBeforeAnyStatementCountsNothing(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		for stop := 1; ; stop++ {
			c := f.crashing()
			var n atomic.Int32
			var armed atomic.Bool
			armed.Store(true)
			pool := faults.Open(t, f.db, faults.Hooks{Before: func(_ context.Context, s faults.Statement) error {
				if armed.Load() && !strings.HasPrefix(s.Text, faults.Rollback) && int(n.Add(1)) == stop {
					return &faults.Error{Number: 50000, State: "XX000", Result: 10}
				}
				return nil
			}})
			o := f.newOutbox(pool)
			_, err := o.Settle(f.ctx(), pool, settled(outbox.Ack, c.last))
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
			{"the message ends", f.sql("{outbox_state}"), f.sql("{status} <> 2 OR {seq} <> %d", c.last.Receipt.Seq)},
			{"the member ends", f.sql("{member}"), f.sql("{status} = 0 OR %s <> '%s'", f.sql("{step}"), c.last.ID)},
			{"the join counts", f.sql("{join}"), f.sql("{completed_steps} < 2")},
			{"the join ends", f.sql("{join}"), f.sql("{status} = 0")},
			{"the wait is woken", f.sql("{outbox_state}"), f.sql("{topic_key} <> %d OR {next_attempt_at} > %s", testdb.TopicKey(join.DefaultWaitTopic), f.instant(f.now().Add(time.Minute)))},
		} {
			allow := f.refuse(refused.table, refused.condition)
			_, err := f.outbox.Settle(f.ctx(), f.db.DB, settled(outbox.Ack, c.last))
			f.ErrorContains(err, "refused", refused.name)
			f.False(outbox.IsRetryable(err), "%s: %v", refused.name, err)
			allow()
			c.untouched(refused.name)
		}
		c.settles(f.outbox, f.db.DB)
	})
}

// instant is a time as the database writes it.
func (f *fixture) instant(at time.Time) string {
	switch f.db.Name {
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
	f.t.Helper()
	if f.db.Name == testdb.SQLite {
		for _, column := range []string{"topic_key", "status", "seq", "message_id", "completed_steps", "next_attempt_at"} {
			condition = strings.ReplaceAll(condition, column, "NEW."+column)
		}
		_, name, _ := strings.Cut(table, ".") // a trigger is in the schema of its table
		f.exec("CREATE TRIGGER refused BEFORE UPDATE ON %s WHEN NOT (%s) BEGIN SELECT RAISE(ABORT, 'refused'); END", name, condition)
		return func() { f.exec("DROP TRIGGER refused") }
	}
	f.exec("ALTER TABLE %s ADD CONSTRAINT refused CHECK (%s)", table, condition)
	return func() { f.exec("ALTER TABLE %s DROP CONSTRAINT refused", table) }
}

// The connection is killed when the settle has ended the message and its step, and waits for the join.
func TestTrap_ASettleWhoseConnectionIsKilledCountsNothing(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.needs(concurrentWriters, killsConnections)
		c := f.crashing()
		tx, err := f.db.BeginTx(f.ctx(), nil)
		f.NoError(err)
		defer func() { _ = tx.Rollback() }() // for a failure before it is rolled back below
		f.execOn(tx, "UPDATE %s SET {completed_steps} = {completed_steps} WHERE {join_id} = '%s'", f.sql("{join}"), c.join)
		l := f.lane("")
		settling := l.settle(settled(outbox.Ack, c.last)...)
		l.blocked(settling)
		f.exec(map[string]string{testdb.Postgres: "SELECT pg_terminate_backend(%d)", testdb.SQLServer: "KILL %d"}[f.db.Name], l.session)
		err, _ = take(f, settling, "the end of the call")
		f.Error(err)
		f.NoError(tx.Rollback())
		c.untouched("killed")
		c.settles(l.outbox, l.db)
	})
}

// killsConnections: one connection can end another.
var killsConnections = &capability{"a way to kill a connection", func(ctx context.Context, db *testdb.DB) (string, error) {
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
}}
