package conformance

import (
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/testdb"
)

// Tests look at the table by SQL of their own and not only through the library.

// sql writes a statement for the database: {outbox}, {outbox_state} and {outbox_lease} are tables, {all} is all messages as they stand, {now}, {past} and {future} are its clock and an hour
// away from it, {now_ms} is its clock in milliseconds; joinTables and joinColumns are the names of joins, inboxTables those
// of inboxes; and any other name in braces is a column.
func (f *fixture) sql(text string, args ...any) string {
	return testdb.Expand(fmt.Sprintf(text, args...), func(name string) string {
		switch name {
		case "outbox":
			return f.part("")
		case "outbox_state", "outbox_lease", "outbox_worker", "outbox_stream", "outbox_queue":
			return f.part(strings.TrimPrefix(name, "outbox_"))
		case "arrivals": // SQLite's publishers write to the queues themselves
			if f.db.Name == testdb.SQLite {
				return "(SELECT 0 AS seq, 0 AS stream_id WHERE false)"
			}
			return f.part("arrival")
		case "all":
			return testdb.Messages(f.part, f.column)
		}
		if text, ok := clock[f.db.Name][name]; ok {
			return text
		}
		if text, ok := f.inboxName(name); ok {
			return text
		}
		if text, ok := f.joinName(name); ok {
			return text
		}
		return f.column(name)
	})
}

var clock = map[string]map[string]string{
	testdb.SQLite: {
		"now":    "CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER)",
		"past":   "(CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) - 3600000)",
		"future": "(CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) + 3600000)",
		"now_ms": "CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER)",
	},
	testdb.Postgres: {
		"now":    "clock_timestamp()",
		"past":   "(clock_timestamp() - interval '1 hour')",
		"future": "(clock_timestamp() + interval '1 hour')",
		"now_ms": "floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint",
	},
	testdb.SQLServer: {
		"now":    "SYSUTCDATETIME()",
		"past":   "DATEADD(HOUR, -1, SYSUTCDATETIME())",
		"future": "DATEADD(HOUR, 1, SYSUTCDATETIME())",
		"now_ms": "DATEDIFF_BIG(MILLISECOND, CAST('1970-01-01' AS DATETIME2(3)), CAST(SYSUTCDATETIME() AS DATETIME2(3)))",
	},
}

// part is the name of one of the outbox's tables: the messages' own is "".
func (f *fixture) part(name string) string {
	return f.object(testdb.Part(f.db.Name, f.config.Dialect.Traits().Table, name))
}

// object is the qualified and quoted name of an object of the outbox, given that of the default outbox.
func (f *fixture) object(name string) string {
	traits := f.config.Dialect.Traits()
	if f.config.Table != "" {
		name = strings.Replace(name, traits.Table, f.config.Table, 1)
	}
	return f.config.Dialect.Quote(f.schema()) + "." + f.config.Dialect.Quote(name)
}

func (f *fixture) schema() string {
	if f.config.Schema != "" {
		return f.config.Schema
	}
	return f.config.Dialect.Traits().Schema
}

func (f *fixture) column(name string) string { return testdb.Column(f.db.Name, name) }

// millis is the expression of a time column in milliseconds since 1970.
func (f *fixture) millis(column string) string {
	switch column = f.column(column); f.db.Name {
	case testdb.Postgres:
		return "floor(extract(epoch FROM " + column + ") * 1000)::bigint"
	case testdb.SQLServer:
		return "DATEDIFF_BIG(MILLISECOND, CAST('1970-01-01' AS DATETIME2(3)), " + column + ")"
	default:
		return column
	}
}

func (f *fixture) text(column string) string {
	if f.db.Name == testdb.SQLServer {
		return "CAST(" + f.column(column) + " AS CHAR(36))"
	}
	return "CAST(" + column + " AS text)"
}

func (f *fixture) exec(text string, args ...any) int {
	f.t.Helper()
	return f.execOn(f.db, text, args...)
}

func (f *fixture) execOn(x outbox.Executor, text string, args ...any) int {
	f.t.Helper()
	statement := f.sql(text, args...)
	result, err := x.ExecContext(f.ctx(), statement)
	f.NoError(err, statement)
	n, err := result.RowsAffected()
	f.NoError(err, statement)
	return int(n)
}

// number is the only number that a query returns.
func (f *fixture) number(text string, args ...any) (n int64) {
	f.t.Helper()
	statement := f.sql(text, args...)
	f.NoError(f.db.QueryRowContext(f.ctx(), statement).Scan(&n), statement)
	return n
}

// count is the number of messages.
func (f *fixture) count() int {
	f.t.Helper()
	return int(f.number("SELECT COUNT(*) FROM {all}"))
}

// now is the time by the database's clock.
func (f *fixture) now() time.Time {
	f.t.Helper()
	return time.UnixMilli(f.number("SELECT {now_ms}")).UTC()
}

// A row is a message as the table has it.
type row struct {
	seq                             outbox.WorkItemID
	id                              outbox.MessageID
	status, retries                 int
	owner                           outbox.OwnerToken // zero for NULL
	lastError, processedBy          string            // empty for NULL
	created, nextAttempt            time.Time
	due, lockedUntil, processed     time.Time // zero for NULL
	hasOwner, hasLease, hasEnd      bool
	hasError, hasProcessedBy, isDue bool
}

// rows reads the messages that a condition holds for, by seq.
func (f *fixture) rows(where string, args ...any) (found []row) {
	f.t.Helper()
	statement := f.sql("SELECT {seq}, "+f.text("message_id")+", {status}, {retry_count}, "+f.text("owner_token")+", {last_error}, {processed_by}, "+
		f.millis("created_at")+", "+f.millis("next_attempt_at")+", "+f.millis("due_at")+", "+f.millis("locked_until")+", "+f.millis("processed_at")+
		", CASE WHEN {next_attempt_at} <= {now} THEN 1 ELSE 0 END FROM {all} WHERE "+where+" ORDER BY {seq}", args...)
	rows, err := f.db.QueryContext(f.ctx(), statement)
	f.NoError(err, statement)
	defer func() { f.NoError(rows.Close()) }()
	for rows.Next() {
		var r row
		var id string
		var owner, lastError, processedBy sql.NullString
		var created, nextAttempt int64
		var due, lockedUntil, processed sql.NullInt64
		f.NoError(rows.Scan(&r.seq, &id, &r.status, &r.retries, &owner, &lastError, &processedBy,
			&created, &nextAttempt, &due, &lockedUntil, &processed, &r.isDue))
		r.id = outbox.MessageID(uuid.MustParse(id))
		if owner.Valid {
			r.owner = outbox.OwnerToken(uuid.MustParse(owner.String))
		}
		r.hasOwner, r.hasLease, r.hasEnd = owner.Valid, lockedUntil.Valid, processed.Valid
		r.hasError, r.hasProcessedBy = lastError.Valid, processedBy.Valid
		r.lastError, r.processedBy = lastError.String, processedBy.String
		r.created, r.nextAttempt = time.UnixMilli(created).UTC(), time.UnixMilli(nextAttempt).UTC()
		r.due, r.lockedUntil, r.processed = fromMillis(due), fromMillis(lockedUntil), fromMillis(processed)
		found = append(found, r)
	}
	f.NoError(rows.Err())
	return found
}

func fromMillis(ms sql.NullInt64) time.Time {
	if !ms.Valid {
		return time.Time{}
	}
	return time.UnixMilli(ms.Int64).UTC()
}

// row reads one message.
func (f *fixture) row(id outbox.MessageID) row {
	f.t.Helper()
	found := f.rows("{message_id} = '%s'", id)
	f.Len(found, 1)
	return found[0]
}

// expireLeases writes the ends of all leases into the past.
func (f *fixture) expireLeases() {
	f.t.Helper()
	f.exec("UPDATE {outbox_lease} SET {locked_until} = {past} WHERE {owner_token} IN (SELECT {owner_token} FROM {all} WHERE {status} = 1)")
}

// makeDue makes all that is ready due now.
func (f *fixture) makeDue() {
	f.t.Helper()
	f.exec("UPDATE {outbox_state} SET {next_attempt_at} = {past} WHERE {status} = 0")
}

// clear deletes all messages, whatever depends on them.
func (f *fixture) clear() {
	f.t.Helper()
	if f.db.Name != testdb.SQLite {
		f.exec("DELETE FROM {arrivals}")
	}
	for _, part := range []string{"state", "lease", "attempt", "", "stream", "queue"} {
		f.exec("DELETE FROM %s", f.part(part))
	}
}

// remove deletes messages, whatever depends on them.
func (f *fixture) remove(where string, args ...any) {
	f.t.Helper()
	f.removeOn(f.db, where, args...)
}

func (f *fixture) removeOn(x outbox.Executor, where string, args ...any) {
	f.t.Helper()
	rows, err := x.QueryContext(f.ctx(), f.sql("SELECT {seq} FROM {all} WHERE "+where, args...))
	f.NoError(err)
	seqs := []string{"0"}
	for rows.Next() {
		var seq int64
		f.NoError(rows.Scan(&seq))
		seqs = append(seqs, fmt.Sprint(seq))
	}
	f.NoError(errors.Join(rows.Err(), rows.Close()))
	for list := range slices.Chunk(seqs, 1000) {
		for _, part := range []string{"state", ""} {
			f.execOn(x, "DELETE FROM %s WHERE {seq} IN (%s)", f.part(part), strings.Join(list, ", "))
		}
	}
}

// steal gives messages to another claim, for an hour.
func (f *fixture) steal(where string, args ...any) {
	f.t.Helper()
	thief := base.NewOwnerToken()
	none := map[string]string{testdb.Postgres: "'{}'", testdb.SQLite: "'[]'", testdb.SQLServer: "N'[]'"}[f.db.Name]
	f.exec("UPDATE {outbox_state} SET {owner_token} = '%s' WHERE {seq} IN (SELECT {seq} FROM {all} WHERE "+where+")", append([]any{thief}, args...)...)
	f.exec("INSERT INTO {outbox_lease} ({owner_token}, {worker_id}, {locked_until}, {seqs}) VALUES ('%s', 1, {future}, "+none+")", thief)
}
