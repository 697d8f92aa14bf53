package cost_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/faults"
	"github.com/incursa/watermill-outbox/internal/testdb"
)

// What calls cost in a table that is full. A call of ten messages may read some tens of rows, whatever waits.

const readsOfTen = 150

// backlog is how many messages wait: enough for a scan to stand out. SQLite is asked for its plan, which needs fewer.
func (f *fixture) backlog() int {
	if testing.Short() || f.DB.Name == testdb.SQLite {
		return 20_000
	}
	return 100_000
}

// analyze lets the database count its rows, which may change its mind about plans.
func (f *fixture) analyze() {
	f.T.Helper()
	for _, part := range []string{"", "state", "lease", "attempt"} {
		f.Exec("%s", map[string]string{
			testdb.SQLite: "ANALYZE", testdb.Postgres: "VACUUM ANALYZE " + f.Part(part), testdb.SQLServer: "UPDATE STATISTICS " + f.Part(part)}[f.DB.Name])
	}
}

// load fills the table by SQL: a tenth of the messages is due later, some have ended, over ten topics.
func (f *fixture) load(n int) {
	f.T.Helper()
	f.loadLater(n, "(i / 10) % 10 = 3")
}

// loadLater says itself which are due later. It only inserts: what an update leaves behind in an index stays there as
// long as any transaction on the server is older.
func (f *fixture) loadLater(n int, later string) {
	f.T.Helper()
	if f.DB.Name == testdb.SQLServer {
		f.Needs(suite.ProcedureReads)
	}
	series, id := map[string]string{
		testdb.SQLite:    "(WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM s WHERE i < %d) SELECT i FROM s) AS s",
		testdb.Postgres:  "generate_series(1, %d) AS s(i)",
		testdb.SQLServer: "(SELECT TOP (%d) CAST(ROW_NUMBER() OVER (ORDER BY a.object_id) AS INT) AS i FROM sys.all_objects AS a CROSS JOIN sys.all_objects AS b) AS s",
	}[f.DB.Name], map[string]string{
		testdb.SQLite: "printf('%08x-0000-4000-8000-%012x', i, i)", testdb.Postgres: "gen_random_uuid()", testdb.SQLServer: "NEWID()",
	}[f.DB.Name]
	topic, payload := "'topic ' || (i % 10)", "''"
	if f.DB.Name == testdb.SQLServer {
		topic, payload = "CONCAT('topic ', i % 10)", "0x"
	}
	keys := "CASE i %% 10"
	for i := range 10 {
		keys += fmt.Sprintf(" WHEN %d THEN %d", i, testdb.TopicKey(fmt.Sprint("topic ", i)))
	}
	f.Exec("INSERT INTO {outbox_worker} ({name}, {started_at}) SELECT 'x', {past} WHERE NOT EXISTS (SELECT 1 FROM {outbox_worker} WHERE {name} = 'x')")
	f.Exec("INSERT INTO {outbox} ({message_id}, {uuid}, {topic}, {topic_key}, {payload}, {created_at}) SELECT %s, 'x', %s, "+keys+" END, %s, {past} FROM %s",
		id, topic, payload, fmt.Sprintf(series, n))
	f.ExecStates("INSERT INTO {outbox_state} ({seq}, {topic_key}, {next_attempt_at}, {status}, {processed_at}, {worker_id}) "+
		"SELECT {seq}, {topic_key}, CASE WHEN %s THEN {future} ELSE {past} END, CASE WHEN i %% 5 = 0 THEN 2 ELSE 0 END, "+
		"CASE WHEN i %% 5 = 0 THEN {past} END, CASE WHEN i %% 5 = 0 THEN (SELECT MAX({worker_id}) FROM {outbox_worker}) END "+
		"FROM (SELECT {seq}, {topic_key}, {seq} - (SELECT MIN({seq}) FROM {outbox}) + 1 AS i FROM {outbox}) AS s", later)
	f.Equal(n, f.Count())
}

func TestOBX113_TheClaimSeeksInItsIndex(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.load(5000)
		f.cost(func(o *outbox.Outbox, _ *sql.DB) {
			claimed, err := o.Claim(f.Context(), outbox.ClaimParams{Topics: suite.Quotas("topic 1", "topic 2"), Limit: 10})
			f.NoError(err)
			f.Len(claimed, 10)
		})
	})
}

func TestLong_ACallOfTenReadsTensOfRows(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.load(f.backlog())
		f.tensOfRows()
		f.analyze()
		f.tensOfRows()
	})
}

func (f *fixture) tensOfRows() {
	f.T.Helper()
	var held []outbox.Claimed
	f.cost(func(o *outbox.Outbox, _ *sql.DB) {
		var err error
		held, err = o.Claim(f.Context(), outbox.ClaimParams{Topics: suite.Quotas("topic 1", "topic 2", "none"), Limit: 10})
		f.NoError(err)
		f.Len(held, 10)
	})
	f.cost(func(o *outbox.Outbox, _ *sql.DB) {
		_, err := o.Renew(f.Context(), time.Minute, held[0].Receipt, held[9].Receipt)
		f.NoError(err)
	})
	f.cost(func(o *outbox.Outbox, db *sql.DB) {
		refused, err := o.Settle(f.Context(), db, append(suite.Settled(outbox.Ack, held[:5]...), suite.Settled(outbox.Retry, held[5:]...)...))
		f.NoError(err)
		f.Empty(refused)
	})
	f.cost(func(o *outbox.Outbox, _ *sql.DB) {
		_, err := o.ReapExpired(f.Context())
		f.NoError(err)
	})
	f.cost(func(o *outbox.Outbox, _ *sql.DB) {
		_, err := o.Get(f.Context(), held[0].ID, held[1].ID)
		f.NoError(err)
	})
	f.cost(func(o *outbox.Outbox, _ *sql.DB) { // nothing that old has ended
		_, err := o.Purge(f.Context(), outbox.PurgeParams{OlderThan: 24 * time.Hour})
		f.NoError(err)
	})
}

// A topic that nobody claims, and all that is due later, costs the others nothing.
func TestTrap_AClaimIsNotSlowedByWhatIsDueLater(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.loadLater(f.backlog()/4, "i % 10 = 1") // all of topic 1
		f.analyze()
		f.cost(func(o *outbox.Outbox, _ *sql.DB) {
			claimed, err := o.Claim(f.Context(), outbox.ClaimParams{Topics: suite.Quotas("topic 1"), Limit: 10})
			f.NoError(err)
			f.Empty(claimed)
		})
	})
}

// What was claimed and acked before leaves no trail that the next claim has to walk.
func TestLong_AClaimIsNotSlowedByWhatWasClaimedBefore(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.load(f.backlog())
		for range 50 {
			claimed := f.ClaimWith(outbox.ClaimParams{Topics: suite.Quotas("topic 1"), Limit: 20})
			f.Empty(f.Settle(suite.Settled(outbox.Ack, claimed...)...))
		}
		f.cost(func(o *outbox.Outbox, _ *sql.DB) {
			claimed, err := o.Claim(f.Context(), outbox.ClaimParams{Topics: suite.Quotas("topic 1"), Limit: 10})
			f.NoError(err)
			f.Len(claimed, 10)
		})
	})
}

// cost runs a call and asserts that it has read some tens of rows. How that is known differs.
func (f *fixture) cost(call func(o *outbox.Outbox, db *sql.DB)) {
	f.T.Helper()
	switch f.DB.Name {
	case testdb.SQLite:
		f.plan(call)
	case testdb.Postgres:
		f.reads(call)
	case testdb.SQLServer:
		f.logicalReads(call)
	}
}

// plan asks SQLite how it runs each statement that is sent: no step may scan a table, or an index of it.
func (f *fixture) plan(call func(o *outbox.Outbox, db *sql.DB)) {
	f.T.Helper()
	log := &faults.Log{}
	pool := faults.Open(f.T, f.DB, log.Hooks())
	call(f.NewOutbox(pool), pool)
	explained := 0
	for _, s := range log.Take() {
		if !strings.Contains(s.Text, `"outbox`) {
			continue
		}
		f.seeksInSQLite(s.Text, s.Args...)
		rows, err := f.DB.QueryContext(f.Context(), "EXPLAIN QUERY PLAN "+s.Text, s.Args...)
		f.NoError(err, s.Text)
		for rows.Next() {
			var id, parent, unused int
			var detail string
			f.NoError(rows.Scan(&id, &parent, &unused, &detail))
			explained++
			f.NotContains(detail, "outbox_ended (status>?)", s.Text) // all that has ever ended
		}
		f.NoError(rows.Err())
		f.NoError(rows.Close())
	}
	f.Positive(explained)
}

// reads runs the call's statements once more in a transaction, in which PostgreSQL counts what is read. Entries of rows
// that are gone count until no transaction of anyone can see those rows any more: then the next reader marks them.
func (f *fixture) reads(call func(o *outbox.Outbox, db *sql.DB)) {
	f.T.Helper()
	var scanned, fetched, entries int
	for deadline := time.Now().Add(suite.Patience); ; {
		scanned, fetched, entries = f.countReads("outbox", call)
		if scanned > 0 || fetched >= readsOfTen || entries < readsOfTen || time.Now().After(deadline) {
			break
		}
	}
	f.Zero(scanned, "rows read by scanning the table")
	f.Less(fetched, readsOfTen, "rows fetched")
	f.Less(entries, readsOfTen, "index entries read")
}

// countReads returns what a call reads of a table when it is made once more.
func (f *fixture) countReads(table string, call func(o *outbox.Outbox, db *sql.DB)) (scanned, fetched, entries int) {
	f.T.Helper()
	log := &faults.Log{}
	pool := faults.Open(f.T, f.DB, log.Hooks())
	call(f.NewOutbox(pool), pool)
	counting := f.DB.Reopen(f.T) // a connection that has counted nothing yet
	tx, err := counting.BeginTx(f.Context(), nil)
	f.NoError(err)
	for _, s := range log.Take() {
		rows, err := tx.QueryContext(f.Context(), s.Text, s.Args...)
		f.NoError(err, s.Text)
		for rows.Next() { // to the end
		}
		f.NoError(rows.Err())
		f.NoError(rows.Close())
	}
	f.NoError(tx.QueryRowContext(f.Context(), `SELECT coalesce(t.seq_tup_read, 0), coalesce(t.idx_tup_fetch, 0),
		(SELECT coalesce(sum(pg_stat_get_xact_tuples_returned(i.indexrelid)), 0) FROM pg_index AS i WHERE i.indrelid = t.relid)
		FROM pg_stat_xact_user_tables AS t WHERE t.schemaname = $1 AND t.relname = $2`, f.Schema(), table).Scan(&scanned, &fetched, &entries))
	f.NoError(tx.Rollback())
	f.NoError(counting.Close())
	f.NoError(pool.Close())
	return scanned, fetched, entries
}

// logicalReads asks SQL Server how many pages the last run of each procedure has read.
func (f *fixture) logicalReads(call func(o *outbox.Outbox, db *sql.DB)) {
	f.T.Helper()
	var mu sync.Mutex
	var sent []faults.Statement
	pool := faults.Open(f.T, f.DB, faults.Hooks{Before: func(_ context.Context, s faults.Statement) error {
		mu.Lock()
		defer mu.Unlock()
		sent = append(sent, s)
		return nil
	}})
	call(f.NewOutbox(pool), pool)
	checked := 0
	for _, s := range sent {
		_, procedure, _ := strings.Cut(s.Text, "EXEC ")
		procedure, _, _ = strings.Cut(procedure, " @")
		var reads int
		f.NoError(f.DB.QueryRowContext(f.Context(), "SELECT MAX(last_logical_reads) FROM sys.dm_exec_procedure_stats WHERE object_id = OBJECT_ID(@p1)", procedure).Scan(&reads), procedure)
		f.Less(reads, 1000, "pages that %s has read", procedure)
		checked++
	}
	f.Positive(checked)
}
