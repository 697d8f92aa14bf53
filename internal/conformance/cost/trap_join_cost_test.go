package cost_test

import (
	"database/sql"
	"regexp"
	"strings"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/faults"
	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/join"
)

// What is done with one step costs the same in a join of a hundred and in one of very many, by what is read. The clock is only
// noted: on a busy machine it says nothing.
func TestLong_AStepCostsTheSameInAHugeJoin(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		if f.DB.Name == testdb.SQLServer {
			f.Needs(suite.ProcedureReads) // hints keep its plans, and a server that counts nothing may not heed them
		}
		c := &joinCost{fixture: f, sent: &faults.Log{}}
		c.db = faults.Open(t, f.DB, c.sent.Hooks())
		c.db.SetMaxOpenConns(1)
		c.outbox, c.joins = f.NewOutbox(c.db), f.Coordinator(c.db)
		huge := f.Fewer(30_000)
		if testing.Short() || f.DB.Name == testdb.SQLite {
			huge = 10_000
		}

		const small, expected = 100, 1 << 30
		one := &costly{id: f.Start(c.joins, join.StartParams{ExpectedSteps: expected})}
		f.AddSteps(c.joins, one.id, "small", small)
		one.held = f.Claim("small")
		for range 10 { // the plans of this connection are made while the tables are small
			for _, call := range c.calls() {
				f.NoError(call(c.db, one))
			}
		}
		many := &costly{id: f.Start(c.joins, join.StartParams{ExpectedSteps: expected})}
		for n := 0; n < huge; n += 1000 {
			f.AddSteps(c.joins, many.id, "huge", 1000)
		}
		many.held = f.Claim("huge")

		for name, call := range c.calls() {
			var inOne, inMany []time.Duration
			for range 15 {
				started := time.Now()
				f.NoError(call(c.db, one), name)
				inOne = append(inOne, time.Since(started))
				started = time.Now()
				f.NoError(call(c.db, many), name)
				inMany = append(inMany, time.Since(started))
			}
			t.Logf("%s: %v in a join of %d, %v in one of %d", name, suite.Median(inOne), small, suite.Median(inMany), huge)
			switch f.DB.Name {
			case testdb.SQLite:
				c.plans(name, func() error { return call(c.db, many) })
			case testdb.Postgres:
				c.reads(name, func(x outbox.Executor) error { return call(x, many) })
			case testdb.SQLServer:
				c.logicalReads(func(_ *outbox.Outbox, db *sql.DB) { f.NoError(call(db, many), name) })
			}
		}
	})
}

// A costly is a join, and what is held of its steps.
type costly struct {
	id   join.ID
	held []outbox.Claimed
}

type joinCost struct {
	*fixture
	db     *sql.DB // one connection
	sent   *faults.Log
	outbox *outbox.Outbox
	joins  *join.Coordinator
}

// calls are what is done with one step of a join.
func (c *joinCost) calls() map[string]func(x outbox.Executor, j *costly) error {
	return map[string]func(x outbox.Executor, j *costly) error{
		"settling a step": func(x outbox.Executor, j *costly) error {
			next := j.held[0]
			j.held = j.held[1:]
			_, err := c.outbox.Settle(c.Context(), x, suite.Settled(outbox.Ack, next))
			return err
		},
		"enqueuing a step": func(x outbox.Executor, j *costly) error {
			_, err := c.joins.Enqueue(c.Context(), x, j.id, outbox.Message{Topic: "added"})
			return err
		},
		"attaching a step": func(x outbox.Executor, j *costly) error {
			ids, err := c.outbox.Enqueue(c.Context(), x, outbox.Message{Topic: "added"})
			if err != nil {
				return err
			}
			return c.joins.Attach(c.Context(), x, j.id, ids...)
		},
		"reporting a step": func(x outbox.Executor, j *costly) error {
			step, err := c.outbox.NewID()
			if err != nil {
				return err
			}
			if err := c.joins.AttachByReport(c.Context(), x, j.id, step); err != nil {
				return err
			}
			return c.joins.ReportStepCompleted(c.Context(), x, j.id, step)
		},
		"waiting": func(x outbox.Executor, j *costly) error {
			_, err := c.joins.EnqueueWait(c.Context(), x, join.Wait{Join: j.id, OnComplete: join.Continuation{Topic: "next"}})
			return err
		},
	}
}

// reads asserts how many rows of all tables PostgreSQL has read for a call, by its own count within a transaction.
func (c *joinCost) reads(name string, call func(x outbox.Executor) error) {
	c.T.Helper()
	tx, err := c.db.BeginTx(c.Context(), nil)
	c.NoError(err)
	count := func() (scanned, fetched, entries int) {
		c.NoError(tx.QueryRowContext(c.Context(), `SELECT sum(t.seq_tup_read), sum(coalesce(t.idx_tup_fetch, 0)),
			sum((SELECT sum(pg_stat_get_xact_tuples_returned(i.indexrelid)) FROM pg_index AS i WHERE i.indrelid = t.relid))
			FROM pg_stat_xact_user_tables AS t WHERE t.schemaname = $1`, c.Schema()).Scan(&scanned, &fetched, &entries))
		return scanned, fetched, entries
	}
	scanned, fetched, entries := count()
	c.NoError(call(tx), name)
	scannedNow, fetchedNow, entriesNow := count()
	c.NoError(tx.Commit())
	c.T.Logf("%s: %d rows scanned, %d fetched, %d entries of indexes", name, scannedNow-scanned, fetchedNow-fetched, entriesNow-entries)
	c.Less(scannedNow-scanned, readsOfTen, "%s: rows read by scanning a table", name)
	c.Less(fetchedNow-fetched, readsOfTen, "%s: rows fetched", name)
	c.Less(entriesNow-entries, readsOfTen, "%s: index entries read", name)
}

// A scan of a table, by its name or by those that statements give it. What comes with the call may be scanned, and so may the
// index of joins that end in this very transaction.
var (
	statementOfRows = regexp.MustCompile(`(?s)^(--[^\n]*\n|\s)*(WITH|SELECT|INSERT|UPDATE|DELETE)\b`)
	tableScan       = regexp.MustCompile(`^SCAN ((main\.)?outbox\w*|o|m|j|w|z|k|r)( |$)`)
	goodScan        = "INDEX outbox_join_decided"
)

// plans asks SQLite how it runs each statement of a call: none may scan a table.
func (c *joinCost) plans(name string, call func() error) {
	c.T.Helper()
	c.sent.Take()
	c.NoError(call(), name)
	explained := 0
	for _, s := range c.sent.Take() {
		if !statementOfRows.MatchString(s.Text) || strings.Contains(s.Text, "sqlite_master") {
			continue
		}
		rows, err := c.DB.QueryContext(c.Context(), "EXPLAIN QUERY PLAN "+s.Text, s.Args...)
		c.NoError(err, s.Text)
		for rows.Next() {
			var id, parent, unused int
			var detail string
			c.NoError(rows.Scan(&id, &parent, &unused, &detail))
			explained++
			c.False(tableScan.MatchString(detail) && !strings.Contains(detail, goodScan), "%s: %s\n%s", name, detail, s.Text)
			c.NotContains(detail, "AUTOMATIC", s.Text)
		}
		c.NoError(rows.Err())
		c.NoError(rows.Close())
	}
	c.Positive(explained)
}
