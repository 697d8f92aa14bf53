package cost_test

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/schema"
)

// What SQLite does for a statement, by its program: the names in a query plan are those of aliases.

// readFromAnEnd are what a statement may read from an end on: a single row, what is empty outside of a transaction, what has a
// row a claim or a paused topic, and what is taken in order up to a limit.
var readFromAnEnd = []string{"sqlite_sequence", "outbox_join_decided", "outbox_log_counter", "outbox_log", "outbox_log_group",
	"outbox_log_pending", "outbox_log_pending_message", "outbox_ready", "outbox_stream_ready", "outbox_stream_blocked", "outbox_requeued", "outbox_leased", "outbox_worker_lives", "outbox_dead", "outbox_join_ended", "outbox_entry_last_seen",
	"outbox_ended", "outbox_audit", "outbox_paused", "outbox_worker"}

// walksOf answers which tables and indexes a statement goes through from an end on, its triggers included.
func (f *fixture) walksOf(db *testdb.DB, statement string, args ...any) (walks []string) {
	f.T.Helper()
	names := map[int64]string{}
	pages, err := db.QueryContext(f.Context(), "SELECT rootpage, name FROM sqlite_schema WHERE rootpage > 0")
	f.NoError(err)
	for pages.Next() {
		var page int64
		var name string
		f.NoError(pages.Scan(&page, &name))
		names[page] = name
	}
	f.NoError(pages.Err())
	rows, err := db.QueryContext(f.Context(), "EXPLAIN "+statement, args...)
	f.NoError(err, statement)
	opened := map[int64]string{}
	for rows.Next() {
		var addr, p1, p2, p3, p5 int64
		var opcode string
		var p4, comment any
		f.NoError(rows.Scan(&addr, &opcode, &p1, &p2, &p3, &p4, &p5, &comment))
		if addr == 0 { // a program of its own: the statement's, or a trigger's
			clear(opened)
		}
		switch opcode {
		case "OpenRead", "OpenWrite", "ReopenIdx":
			opened[p1] = names[p2]
		case "OpenEphemeral", "OpenPseudo", "OpenDup", "SorterOpen", "VOpen":
			delete(opened, p1)
		case "OpenAutoindex": // made for this one statement, from all of a table
			walks = append(walks, "an automatic index")
		case "Rewind", "Last":
			if name := opened[p1]; name != "" { // the schema itself has none
				walks = append(walks, name)
			}
		}
	}
	f.NoError(rows.Err())
	return walks
}

// seeksUnderAllStatistics asserts of all operations, whatever SQLite believes, that they are driven from their keys.
func (f *fixture) seeksUnderAllStatistics() {
	f.T.Helper()
	for _, rows := range believedRows {
		for _, same := range []int{1, rows / 2} {
			f.believeSQLite(rows, same)
			f.onlySeeks(fmt.Sprintf("statistics of %d rows, %d of a key", rows, same))
		}
	}
}

// onlySeeks asserts that no operation goes through a table, or an index of it, where it has keys.
func (f *fixture) onlySeeks(believed string) {
	f.T.Helper()
	again := f.DB.Reopen(f.T) // statistics are read with the schema
	files, err := fs.Glob(schema.SQLite(), "operations/*.sql")
	f.NoError(err)
	f.NotEmpty(files)
	for _, file := range files {
		text, err := fs.ReadFile(schema.SQLite(), file)
		f.NoError(err)
		for _, statement := range (outbox.SQLite{}).Call(string(text)) {
			args := append([]any{"{}", []byte{}}, make([]any, 9)...) // those of the message, or event, that is inserted by itself, too
			for _, walk := range f.walksOf(again, statement.Text, args...) {
				if file == "operations/outbox_list.sql" && walk == "outbox" {
					continue // it lists messages from the newest on, as many as it is told to look at
				}
				f.Contains(readFromAnEnd, walk, "%s, with %s:\n%s", file, believed, statement.Text)
			}
		}
	}
	f.NoError(again.Close())
}

// believeSQLite tells SQLite how many rows each table has, and how many of them have the same key; -1 rows are no statistics.
func (f *fixture) believeSQLite(rows, same int) {
	f.T.Helper()
	f.Exec("ANALYZE") // there is no table of statistics before
	f.Exec("DELETE FROM sqlite_stat1")
	if rows >= 0 {
		f.Exec("INSERT INTO sqlite_stat1 (tbl, idx, stat) SELECT t.name, i.name, '%d' || "+
			"replace(hex(zeroblob((SELECT count(*) FROM pragma_index_info(i.name)))), '00', ' %d') "+
			"FROM sqlite_schema AS t, pragma_index_list(t.name) AS i WHERE t.type = 'table' "+
			"UNION ALL SELECT t.name, NULL, '%d' FROM sqlite_schema AS t "+
			"WHERE t.type = 'table' AND NOT EXISTS (SELECT 1 FROM pragma_index_list(t.name))", rows, same, rows)
	}
}

// seeksInSQLite asserts of a statement that was sent what onlySeeks does of all.
func (f *fixture) seeksInSQLite(statement string, args ...any) {
	f.T.Helper()
	walks := f.walksOf(f.DB, statement, args...)
	f.Empty(slices.DeleteFunc(walks, func(name string) bool { return slices.Contains(readFromAnEnd, name) }), strings.TrimSpace(statement))
}
