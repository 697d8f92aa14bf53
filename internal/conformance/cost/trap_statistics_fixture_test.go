package cost_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/admin"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/faults"
	"github.com/incursa/watermill-outbox/internal/seam"
	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/join"
)

// What a call reads while the database believes something else about its tables.

// readsOfTenKeys is the most that a call of ten keys may read, of all tables, and far less than any of them has.
const readsOfTenKeys = 400

// believedRows are what a database may believe; -1 is nothing.
var believedRows = []int{-1, 0, 1, 10_000_000}

// A counted is an outbox whose calls are looked at. On PostgreSQL they run in the transaction x, which is taken back.
type counted struct {
	*fixture
	x      outbox.Executor
	pool   *sql.DB // for what takes no executor; what is sent to it runs in x instead, and then fails with errCounted
	outbox *outbox.Outbox
	joins  *join.Coordinator
}

var errCounted = errors.New("has been counted")

func (f *fixture) counting(x outbox.Executor, pool *sql.DB) *counted {
	return &counted{f, x, pool, f.NewOutbox(pool), f.Coordinator(pool)}
}

// underAllStatistics asserts for each call what it reads, whatever the database believes. SQLite, which cannot tell what is
// read, shows how it runs each statement there is.
func (f *fixture) underAllStatistics(calls map[string]func(*counted) error) {
	f.T.Helper()
	if f.DB.Name == testdb.SQLite {
		all := &fixture{suite.New(f.T, f.DB.Open(f.T), "")}
		all.WithInbox = true
		all.Migrate()
		all.seeksUnderAllStatistics()
		return
	}
	defer f.Exec("ANALYZE") // for what is asked at the end of the test
	for _, rows := range believedRows {
		f.believe(rows)
		for name, call := range calls {
			name = fmt.Sprintf("%s, with statistics of %d rows", name, rows)
			for _, plans := range []string{"force_custom_plan", "force_generic_plan"} {
				f.readsLittle(name, plans, call)
			}
		}
	}
}

// uncounted keeps autovacuum away, which counts rows and whose snapshots keep dead entries.
func (f *fixture) uncounted() {
	f.T.Helper()
	if f.DB.Name != testdb.Postgres {
		return
	}
	tables, err := f.Strings(f.DB, fmt.Sprintf("SELECT tablename FROM pg_tables WHERE schemaname = '%s'", f.Schema()))
	f.NoError(err)
	for _, table := range tables {
		f.Exec("ALTER TABLE %s.%s SET (autovacuum_enabled = off)", f.Schema(), table)
	}
}

// vacuumed waits until no dead row is left. While another test holds an older transaction, in any database of the server, indexes
// still lead to dead rows, and reading them counts.
func (f *fixture) vacuumed() {
	f.T.Helper()
	if f.DB.Name != testdb.Postgres {
		return
	}
	f.Eventually(func() bool {
		f.Exec("VACUUM")
		return f.Number("SELECT COALESCE(SUM(n_dead_tup), 0) FROM pg_stat_user_tables WHERE schemaname = '%s'", f.Schema()) == 0
	}, suite.Patience, 100*time.Millisecond, "dead rows are gone")
}

// believe tells the database how many rows each table has; -1 are no statistics.
func (f *fixture) believe(rows int) {
	f.T.Helper()
	f.uncounted()
	ours := fmt.Sprintf("SELECT c.oid FROM pg_class AS c WHERE c.relnamespace = '%s'::regnamespace AND c.relkind IN ('r', 'i')", f.Schema())
	f.Exec("DELETE FROM pg_statistic WHERE starelid IN (%s)", ours)
	f.Exec("UPDATE pg_class SET reltuples = %d, relpages = pg_relation_size(oid) / 8192 WHERE oid IN (%s)", rows, ours)
}

// readsLittle runs a call in a transaction, in which PostgreSQL counts what is read, and takes it back.
func (f *fixture) readsLittle(name, plans string, call func(*counted) error) {
	f.T.Helper()
	again := f.DB.Reopen(f.T) // a connection that has counted nothing yet, and whose plans are new
	tx, err := again.BeginTx(f.Context(), nil)
	f.NoError(err)
	_, err = tx.ExecContext(f.Context(), "SET LOCAL plan_cache_mode = "+plans)
	f.NoError(err)
	pool := faults.Open(f.T, f.DB, faults.Hooks{Before: func(ctx context.Context, s faults.Statement) error {
		return errors.Join(runToTheEnd(ctx, tx, s), errCounted)
	}})
	if err := call(f.counting(tx, pool)); !errors.Is(err, errCounted) {
		f.NoError(err, name)
	}
	var scanned, fetched, entries int
	f.NoError(tx.QueryRowContext(f.Context(), `SELECT sum(t.seq_tup_read), sum(coalesce(t.idx_tup_fetch, 0)),
		sum((SELECT sum(pg_stat_get_xact_tuples_returned(i.indexrelid)) FROM pg_index AS i WHERE i.indrelid = t.relid))
		FROM pg_stat_xact_user_tables AS t WHERE t.schemaname = $1`, f.Schema()).Scan(&scanned, &fetched, &entries))
	f.NoError(tx.Rollback())
	f.NoError(pool.Close())
	f.NoError(again.Close())
	told := fmt.Sprintf("%s, %s: %d rows scanned, %d fetched, %d entries of indexes", name, plans, scanned, fetched, entries)
	f.Less(max(scanned, fetched, entries), readsOfTenKeys, told)
	f.T.Log(told)
}

func runToTheEnd(ctx context.Context, x outbox.Executor, s faults.Statement) error {
	rows, err := x.QueryContext(ctx, s.Text, s.Args...)
	if err != nil {
		return err
	}
	for rows.Next() { // what it answers does not matter
	}
	return errors.Join(rows.Err(), rows.Close())
}

// pause pauses a topic, so that a claim meets one.
func (f *fixture) pause(topic string) {
	f.T.Helper()
	a, err := admin.New(f.Outbox)
	f.NoError(err)
	f.NoError(a.Pause(f.Context(), admin.PauseParams{Topic: topic}))
}

// act runs an operation of package admin.
func (c *counted) act(op string, arg any) error {
	return seam.Outbox(c.outbox).Run(c.Context(), c.x, op, arg, func(*sql.Rows) error { return nil })
}
