package suite

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
	"github.com/incursa/watermill-outbox/internal/testoutbox"
)

// Tests look at the table by SQL of their own and not only through the library.

// SQL writes a statement for the database. Names in braces have the meaning of testoutbox.Names, and these: {arrivals} is a table,
// {queued} what is in the queues of streams, on PostgreSQL with what is alone in a stream's row, {now}, {past} and {future} are the
// database's clock and an hour away from it, {now_ms} is its clock in milliseconds; JoinTables and joinColumns are the names of
// joins, inboxTables those of inboxes.
func (f *Fixture) SQL(text string, args ...any) string {
	return testdb.Expand(fmt.Sprintf(text, args...), func(name string) string {
		if name == "arrivals" { // SQLite's publishers write to the queues themselves
			if f.DB.Name == testdb.SQLite {
				return "(SELECT 0 AS seq, 0 AS stream_id WHERE false)"
			}
			return f.Part("arrival")
		}
		if name == "queued" {
			queued := "SELECT {stream_id}, {seq}, 0 AS alone FROM {outbox_queue}"
			if f.DB.Name == testdb.Postgres {
				queued += " UNION ALL SELECT {stream_id}, head, 1 FROM {outbox_stream} WHERE head IS NOT NULL"
			}
			return "(" + testdb.Expand(queued, f.names().Of) + ")"
		}
		if text, ok := clock[f.DB.Name][name]; ok {
			return text
		}
		if text, ok := f.inboxName(name); ok {
			return text
		}
		if text, ok := f.joinName(name); ok {
			return text
		}
		return f.names().Of(name)
	})
}

func (f *Fixture) names() testoutbox.Names {
	return testoutbox.Names{Backend: f.DB.Name, Schema: f.Config.Schema, Table: f.Config.Table}
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

// Part is the name of one of the outbox's tables: the messages' own is "".
func (f *Fixture) Part(name string) string { return f.names().Part(name) }

// Object is the qualified and quoted name of an object of the outbox, given that of the default outbox.
func (f *Fixture) Object(name string) string { return f.names().Object(name) }

// Schema is the name of the schema, where it is the default one, too.
func (f *Fixture) Schema() string { return f.names().InSchema() }

// Column is the name of a column.
func (f *Fixture) Column(name string) string { return testdb.Column(f.DB.Name, name) }

// Millis is the expression of a time column in milliseconds since 1970.
func (f *Fixture) Millis(column string) string {
	switch column = f.Column(column); f.DB.Name {
	case testdb.Postgres:
		return "floor(extract(epoch FROM " + column + ") * 1000)::bigint"
	case testdb.SQLServer:
		return "DATEDIFF_BIG(MILLISECOND, CAST('1970-01-01' AS DATETIME2(3)), " + column + ")"
	default:
		return column
	}
}

// Text is the expression of a column as text.
func (f *Fixture) Text(column string) string {
	if f.DB.Name == testdb.SQLServer {
		return "CAST(" + f.Column(column) + " AS CHAR(36))"
	}
	return "CAST(" + column + " AS text)"
}

// Exec runs a statement, which SQL completes, and returns how many rows it has changed.
func (f *Fixture) Exec(text string, args ...any) int {
	f.T.Helper()
	return f.ExecOn(f.DB, text, args...)
}

// ExecStates runs a statement that changes states as no operation does. On PostgreSQL it also corrects the columns that repeat for
// the indexes what status says, which must have been right before: it hides no fault of an operation.
func (f *Fixture) ExecStates(text string, args ...any) int {
	f.T.Helper()
	return f.ExecStatesOn(f.DB, text, args...)
}

// ExecStatesOn does so in a transaction, or on another pool.
func (f *Fixture) ExecStatesOn(x outbox.Executor, text string, args ...any) int {
	f.T.Helper()
	f.checkRepeated(f.Context())
	n := f.ExecOn(x, text, args...)
	if f.DB.Name == testdb.Postgres {
		f.ExecOn(x, "%s", statement("repeat_status"))
	}
	return n
}

// ExecOn does what Exec does, in a transaction or on another pool.
func (f *Fixture) ExecOn(x outbox.Executor, text string, args ...any) int {
	f.T.Helper()
	statement := f.SQL(text, args...)
	result, err := x.ExecContext(f.Context(), statement)
	f.NoError(err, statement)
	n, err := result.RowsAffected()
	f.NoError(err, statement)
	return int(n)
}

// Number is the only number that a query returns.
func (f *Fixture) Number(text string, args ...any) (n int64) {
	f.T.Helper()
	statement := f.SQL(text, args...)
	f.NoError(f.DB.QueryRowContext(f.Context(), statement).Scan(&n), statement)
	return n
}

// Count is the number of messages.
func (f *Fixture) Count() int {
	f.T.Helper()
	return int(f.Number("%s", statement("count_messages")))
}

// Now is the time by the database's clock.
func (f *Fixture) Now() time.Time {
	f.T.Helper()
	return time.UnixMilli(f.Number("%s", statement("now"))).UTC()
}

// A Row is a message as the table has it.
type Row struct {
	Seq                             outbox.WorkItemID
	ID                              outbox.MessageID
	Status, Retries                 int
	Owner                           outbox.OwnerToken // zero for NULL
	LastError, ProcessedBy          string            // empty for NULL
	Created, NextAttempt            time.Time
	Due, LockedUntil, Processed     time.Time // zero for NULL
	HasOwner, HasLease, HasEnd      bool
	HasError, HasProcessedBy, IsDue bool
}

// Rows reads the messages that a condition holds for, by seq.
func (f *Fixture) Rows(where string, args ...any) (found []Row) {
	f.T.Helper()
	statement := f.SQL("SELECT {seq}, "+f.Text("message_id")+", {status}, {retry_count}, "+f.Text("owner_token")+", {last_error}, {processed_by}, "+
		f.Millis("created_at")+", "+f.Millis("next_attempt_at")+", "+f.Millis("due_at")+", "+f.Millis("locked_until")+", "+f.Millis("processed_at")+
		", CASE WHEN {next_attempt_at} <= {now} THEN 1 ELSE 0 END FROM {all} WHERE "+where+" ORDER BY {seq}", args...)
	rows, err := f.DB.QueryContext(f.Context(), statement)
	f.NoError(err, statement)
	defer func() { f.NoError(rows.Close()) }()
	for rows.Next() {
		var r Row
		var id string
		var owner, lastError, processedBy sql.NullString
		var created, nextAttempt int64
		var due, lockedUntil, processed sql.NullInt64
		f.NoError(rows.Scan(&r.Seq, &id, &r.Status, &r.Retries, &owner, &lastError, &processedBy,
			&created, &nextAttempt, &due, &lockedUntil, &processed, &r.IsDue))
		r.ID = outbox.MessageID(uuid.MustParse(id))
		if owner.Valid {
			r.Owner = outbox.OwnerToken(uuid.MustParse(owner.String))
		}
		r.HasOwner, r.HasLease, r.HasEnd = owner.Valid, lockedUntil.Valid, processed.Valid
		r.HasError, r.HasProcessedBy = lastError.Valid, processedBy.Valid
		r.LastError, r.ProcessedBy = lastError.String, processedBy.String
		r.Created, r.NextAttempt = time.UnixMilli(created).UTC(), time.UnixMilli(nextAttempt).UTC()
		r.Due, r.LockedUntil, r.Processed = fromMillis(due), fromMillis(lockedUntil), fromMillis(processed)
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

// Row reads one message.
func (f *Fixture) Row(id outbox.MessageID) Row {
	f.T.Helper()
	found := f.Rows("{message_id} = '%s'", id)
	f.Len(found, 1)
	return found[0]
}

// ExpireLeases writes the ends of all leases into the past.
func (f *Fixture) ExpireLeases() {
	f.T.Helper()
	f.Exec("%s", statement("expire_leases"))
}

// MakeDue makes all that is ready due now.
func (f *Fixture) MakeDue() {
	f.T.Helper()
	f.Exec("%s", statement("make_due"))
}

// Clear deletes all messages, whatever depends on them.
func (f *Fixture) Clear() {
	f.T.Helper()
	if f.DB.Name != testdb.SQLite {
		f.Exec("DELETE FROM {arrivals}")
	}
	for _, part := range []string{"state", "lease", "attempt", "", "stream", "queue"} {
		f.Exec("DELETE FROM %s", f.Part(part))
	}
}

// Remove deletes messages, whatever depends on them.
func (f *Fixture) Remove(where string, args ...any) {
	f.T.Helper()
	f.RemoveOn(f.DB, where, args...)
}

// RemoveOn does so in a transaction, or on another pool.
func (f *Fixture) RemoveOn(x outbox.Executor, where string, args ...any) {
	f.T.Helper()
	rows, err := x.QueryContext(f.Context(), f.SQL("SELECT {seq} FROM {all} WHERE "+where, args...))
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
			f.ExecOn(x, "DELETE FROM %s WHERE {seq} IN (%s)", f.Part(part), strings.Join(list, ", "))
		}
	}
}

// Steal gives messages to another claim, for an hour.
func (f *Fixture) Steal(where string, args ...any) {
	f.T.Helper()
	thief := base.NewOwnerToken()
	none := map[string]string{testdb.Postgres: "'{}'", testdb.SQLite: "'[]'", testdb.SQLServer: "N'[]'"}[f.DB.Name]
	f.Exec("UPDATE {outbox_state} SET {owner_token} = '%s' WHERE {seq} IN (SELECT {seq} FROM {all} WHERE "+where+")", append([]any{thief}, args...)...)
	f.Exec("INSERT INTO {outbox_lease} ({owner_token}, {worker_id}, {locked_until}, {seqs}) VALUES ('%s', 1, {future}, "+none+")", thief)
}
