package conformance

import (
	"database/sql"
	"time"

	"github.com/google/uuid"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/join"
)

// The tables of joins, by SQL of the tests' own.

// joinTables are the names of the tables, in the statements of tests and as they are.
var joinTables = map[string][2]string{
	"join":   {"outbox_join", "OutboxJoin"},
	"member": {"outbox_join_member", "OutboxJoinMember"},
	"size":   {"outbox_join_size", "OutboxJoinSize"},
	"wait":   {"outbox_join_wait", "OutboxJoinWait"},
}

// joinColumns are columns whose name is not that of the same thing in the outbox table, on SQL Server.
var joinColumns = map[string][2]string{
	"step":     {"message_id", "OutboxMessageId"},
	"created":  {"created_at", "CreatedUtc"},
	"updated":  {"last_updated_at", "LastUpdatedUtc"},
	"deadline": {"deadline_at", "DeadlineUtc"},
}

// joinName is the table or column of joins that a name in braces stands for.
func (f *fixture) joinName(name string) (text string, ok bool) {
	if _, ok := joinTables[name]; ok {
		return f.object(f.joinTable(name)), true
	}
	if names, ok := joinColumns[name]; ok {
		return f.either(names[0], names[1]), true
	}
	return "", false
}

// joinTable is the name of a table, of the default outbox.
func (f *fixture) joinTable(name string) string {
	return f.either(joinTables[name][0], joinTables[name][1])
}

// either chooses between the two ways of naming things.
func (f *fixture) either(usually, onSQLServer string) string {
	if f.db.Name == testdb.SQLServer {
		return onSQLServer
	}
	return usually
}

// A joinRow is a join as the table has it.
type joinRow struct {
	key, metadata              sql.NullString
	expected, quorum           sql.NullInt64
	completed, failed          int
	status, verdict            int
	created, updated           time.Time
	attached, members, waiting int // by the rows of the other tables
}

// joinRow reads one join and how many rows belong to it.
func (f *fixture) joinRow(id join.ID) (r joinRow) {
	f.t.Helper()
	of := func(what, table string) string {
		return f.sql("(SELECT %s FROM {%s} WHERE {join_id} = '%s')", what, table, id)
	}
	statement := f.sql("SELECT {grouping_key}, {metadata}, {expected_steps}, {quorum}, {completed_steps}, {failed_steps}, {status}, {verdict}, %s, %s, "+
		of("{attached}", "size")+", "+of("COUNT(*)", "member")+", "+of("COUNT(*)", "wait")+" FROM {join} WHERE {join_id} = '%s'",
		f.joinMillis("created"), f.joinMillis("updated"), id)
	var created, updated int64
	f.NoError(f.db.QueryRowContext(f.ctx(), statement).Scan(&r.key, &r.metadata, &r.expected, &r.quorum, &r.completed, &r.failed,
		&r.status, &r.verdict, &created, &updated, &r.attached, &r.members, &r.waiting), statement)
	r.created, r.updated = time.UnixMilli(created).UTC(), time.UnixMilli(updated).UTC()
	return r
}

// joinMillis is the expression of a time column of joins in milliseconds since 1970.
func (f *fixture) joinMillis(column string) string {
	name, _ := f.joinName(column)
	switch f.db.Name {
	case testdb.Postgres:
		return "floor(extract(epoch FROM " + name + ") * 1000)::bigint"
	case testdb.SQLServer:
		return "DATEDIFF_BIG(MILLISECOND, CAST('1970-01-01' AS DATETIME2(3)), " + name + ")"
	default:
		return name
	}
}

// joinCount is the number of joins.
func (f *fixture) joinCount() int {
	f.t.Helper()
	return int(f.number("SELECT COUNT(*) FROM {join}"))
}

// steps are the states of the steps of a join.
func (f *fixture) steps(id join.ID) map[outbox.MessageID]join.StepStatus {
	f.t.Helper()
	name, _ := f.joinName("step")
	rows, err := f.db.QueryContext(f.ctx(), f.sql("SELECT CAST("+name+" AS "+f.either("text", "CHAR(36)")+"), {status} FROM {member} WHERE {join_id} = '%s'", id))
	f.NoError(err)
	defer func() { f.NoError(rows.Close()) }()
	steps := map[outbox.MessageID]join.StepStatus{}
	for rows.Next() {
		var step string
		var status join.StepStatus
		f.NoError(rows.Scan(&step, &status))
		steps[outbox.MessageID(uuid.MustParse(step))] = status
	}
	f.NoError(rows.Err())
	return steps
}

// step is the state of one step, which must be there.
func (f *fixture) step(id join.ID, message outbox.MessageID) join.StepStatus {
	f.t.Helper()
	status, ok := f.steps(id)[message]
	f.True(ok, "the message is no step")
	return status
}

// backdate writes the times of a join into the past, so that a change of them shows.
func (f *fixture) backdate(id join.ID) {
	f.t.Helper()
	f.Equal(1, f.exec("UPDATE {join} SET {created} = {past}, {updated} = {past} WHERE {join_id} = '%s'", id))
}
