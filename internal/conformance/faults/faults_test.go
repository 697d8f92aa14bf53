package faults_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	_ "github.com/incursa/watermill-outbox/internal/conformance/drivers"
	"github.com/incursa/watermill-outbox/internal/faults"
	"github.com/incursa/watermill-outbox/internal/testdb"
)

// forever is longer than any test waits for what ends by a context.
const forever = time.Hour

// A bench is a table, a pool on which the next statement of a text meets a fault, and one that is well.
type bench struct {
	*require.Assertions
	t      *testing.T
	db     *testdb.DB
	faulty *sql.DB
	table  string

	armed   atomic.Pointer[faults.Fault]
	at      string // how the statement begins
	release chan struct{}
}

func forEachTable(t *testing.T, test func(b *bench)) {
	t.Helper()
	testdb.ForEach(t, func(t *testing.T, db *testdb.DB) {
		b := &bench{Assertions: require.New(t), t: t, db: db, table: "things", release: make(chan struct{})}
		if db.Schema != "" {
			b.table = db.Schema + ".things"
		}
		b.faulty = faults.Open(t, db, faults.Hooks{Release: b.release, Fault: b.fault, Broken: func(err error) { t.Error(err) }})
		_, err := db.ExecContext(t.Context(), "CREATE TABLE "+b.table+" (id INT NOT NULL)")
		b.NoError(err)
		test(b)
	})
}

func (b *bench) arm(at string, fault faults.Fault) {
	b.at = at
	b.armed.Store(&fault)
}

func (b *bench) fault(_ context.Context, s faults.Statement) faults.Fault {
	if fault := b.armed.Load(); fault != nil && strings.HasPrefix(s.Text, b.at) && b.armed.CompareAndSwap(fault, nil) {
		return *fault
	}
	return faults.Fault{}
}

func (b *bench) insert(x interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}) error {
	_, err := x.ExecContext(b.t.Context(), "INSERT INTO "+b.table+" (id) VALUES (1)")
	return err
}

// insertTwo inserts two rows and reads them back.
func (b *bench) insertTwo() (read int, err error) {
	text := "INSERT INTO " + b.table + " (id) VALUES (1), (2) RETURNING id"
	if b.db.Name == testdb.SQLServer {
		text = "INSERT INTO " + b.table + " (id) OUTPUT inserted.id VALUES (1), (2)"
	}
	rows, err := b.faulty.QueryContext(b.t.Context(), text)
	if err != nil {
		return 0, err
	}
	for rows.Next() {
		read++
	}
	return read, errors.Join(rows.Err(), rows.Close())
}

// holds asserts how many rows there are for others.
func (b *bench) holds(n int) {
	b.t.Helper()
	b.Equal(n, b.count())
}

func (b *bench) count() (n int) {
	b.t.Helper()
	b.NoError(b.db.QueryRowContext(b.t.Context(), "SELECT COUNT(*) FROM "+b.table).Scan(&n))
	return n
}

// begin runs an INSERT that meets an armed fault, and returns once that is in force and the table holds n rows.
func (b *bench) begin(ctx context.Context, n int) <-chan error {
	b.t.Helper()
	answered := make(chan error, 1)
	go func() {
		_, err := b.faulty.ExecContext(ctx, "INSERT INTO "+b.table+" (id) VALUES (1)")
		answered <- err
	}()
	b.Eventually(func() bool { return b.armed.Load() == nil && b.count() == n }, time.Minute, time.Millisecond)
	return answered
}

var errServer = &faults.Error{Number: 596, State: "57P01", Result: 10}

func TestACutRollsBackWhatIsOpen(t *testing.T) {
	for _, fault := range []faults.Fault{
		{Kind: faults.Cut}, {Kind: faults.CutAfter}, {Kind: faults.BadConn}, {Kind: faults.CutWithin},
		{Kind: faults.Hang, For: 1}, {Kind: faults.HangAfter, For: 1}, {Kind: faults.Deaf, For: 1}, {Kind: faults.End, Err: errServer},
	} {
		t.Run(fault.Kind.String(), func(t *testing.T) {
			forEachTable(t, func(b *bench) {
				tx, err := b.faulty.BeginTx(b.t.Context(), nil)
				b.NoError(err)
				b.NoError(b.insert(tx))
				b.arm("INSERT", fault)
				b.Error(b.insert(tx))
				b.ErrorIs(b.insert(tx), driver.ErrBadConn)
				b.Error(tx.Commit())
				b.holds(0)
				b.NoError(b.insert(b.faulty), "another connection takes its place")
				b.holds(1)
			})
		})
	}
}

func TestACutBeforeAndAfterCommit(t *testing.T) {
	for kind, rows := range map[faults.Kind]int{faults.Cut: 0, faults.BadConn: 0, faults.CutAfter: 1, faults.CutWithin: 1, faults.Refuse: 0, faults.End: 0} {
		t.Run(kind.String(), func(t *testing.T) {
			forEachTable(t, func(b *bench) {
				tx, err := b.faulty.BeginTx(b.t.Context(), nil)
				b.NoError(err)
				b.NoError(b.insert(tx))
				b.arm(faults.Commit, faults.Fault{Kind: kind, Err: errServer})
				b.Error(tx.Commit())
				b.holds(rows)
				b.NoError(b.insert(b.faulty))
				b.holds(rows + 1)
			})
		})
	}
}

func TestACutBeforeAndAfterAStatement(t *testing.T) {
	forEachTable(t, func(b *bench) {
		b.arm("INSERT", faults.Fault{Kind: faults.Cut})
		b.ErrorIs(b.insert(b.faulty), io.ErrUnexpectedEOF)
		b.holds(0)
		b.arm("INSERT", faults.Fault{Kind: faults.BadConn})
		b.NoError(b.insert(b.faulty), "nothing was sent: database/sql tries another connection")
		b.holds(1)
		b.arm("INSERT", faults.Fault{Kind: faults.CutAfter})
		b.ErrorIs(b.insert(b.faulty), io.ErrUnexpectedEOF)
		b.holds(2)
		b.arm("INSERT", faults.Fault{Kind: faults.CutWithin})
		read, err := b.insertTwo()
		b.ErrorIs(err, io.ErrUnexpectedEOF)
		b.Equal(1, read, "half of the rows")
		b.holds(4)
		read, err = b.insertTwo()
		b.NoError(err)
		b.Equal(2, read)
	})
}

func TestARefusedStatement(t *testing.T) {
	forEachTable(t, func(b *bench) {
		b.arm("INSERT", faults.Fault{Kind: faults.Refuse, Err: faults.Deadlock(b.db.Name)})
		var e *faults.Error
		b.ErrorAs(b.insert(b.faulty), &e)
		b.holds(0)

		tx, err := b.faulty.BeginTx(b.t.Context(), nil)
		b.NoError(err)
		b.NoError(b.insert(tx))
		b.arm("INSERT", faults.Fault{Kind: faults.Refuse, Err: errServer, Abort: "SELECT no_such_column"})
		b.ErrorAs(b.insert(tx), &e)
		if b.db.Name == testdb.Postgres {
			b.Error(b.insert(tx), "the transaction has failed")
		}
		b.NoError(tx.Rollback())
		b.holds(0)
	})
}

func TestWhatHangs(t *testing.T) {
	forEachTable(t, func(b *bench) {
		for kind, rows := range map[faults.Kind]int{faults.Hang: 0, faults.HangAfter: 1} {
			b.holds(0)
			b.arm("INSERT", faults.Fault{Kind: kind, For: forever})
			ctx, cancel := context.WithCancel(b.t.Context())
			answered := b.begin(ctx, rows)
			cancel()
			b.ErrorIs(<-answered, context.Canceled)
			b.holds(rows)
			_, err := b.db.ExecContext(b.t.Context(), "DELETE FROM "+b.table)
			b.NoError(err)
		}

		// Deaf to its context: only its own time, or the release of all, ends it.
		b.arm("INSERT", faults.Fault{Kind: faults.Deaf, For: forever})
		ctx, cancel := context.WithCancel(b.t.Context())
		answered := b.begin(ctx, 0)
		cancel()
		timer := time.NewTimer(20 * time.Millisecond)
		defer timer.Stop()
		select {
		case err := <-answered:
			b.FailNow("it heeds its context", err)
		case <-timer.C:
		}
		close(b.release)
		b.Error(<-answered)
		b.holds(0)
	})
}

func TestTheScheduleOfAnOperationIsThatOfItsSeed(t *testing.T) {
	drawn := func(seed uint64, before int) (list string) {
		s := faults.NewSchedule(testdb.Postgres, faults.ScheduleConfig{Seed: seed, Rate: 0.5, Beside: 0.5, Hang: time.Second, HangBeside: time.Second, Delay: time.Second})
		hooks := s.Hooks("pool")
		for range before { // of others
			hooks.Fault(t.Context(), faults.Statement{})
		}
		for op := range uint64(20) {
			ctx := faults.Operation(t.Context(), op)
			for range 5 {
				f := hooks.Fault(ctx, faults.Statement{})
				list += fmt.Sprintln(f.Kind, f.For, f.Err)
			}
		}
		total, kinds := s.Injected()
		require.Positive(t, total)
		require.NotEmpty(t, kinds)
		s.Stop()
		require.Zero(t, hooks.Fault(t.Context(), faults.Statement{}))
		return list
	}
	require.Equal(t, drawn(1, 0), drawn(1, 7))
	require.NotEqual(t, drawn(1, 0), drawn(2, 0))
}
