package suite

import (
	"database/sql"
	"time"

	"github.com/google/uuid"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/join"
)

// The tables of joins, by SQL of the tests' own.

// JoinTables are the names of the tables, in the statements of tests and as they are.
var JoinTables = map[string][2]string{
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
func (f *Fixture) joinName(name string) (text string, ok bool) {
	if _, ok := JoinTables[name]; ok {
		return f.Object(f.JoinTable(name)), true
	}
	if names, ok := joinColumns[name]; ok {
		return f.Either(names[0], names[1]), true
	}
	return "", false
}

// JoinTable is the name of a table, of the default outbox.
func (f *Fixture) JoinTable(name string) string {
	return f.Either(JoinTables[name][0], JoinTables[name][1])
}

// Either chooses between the two ways of naming things.
func (f *Fixture) Either(usually, onSQLServer string) string {
	if f.DB.Name == testdb.SQLServer {
		return onSQLServer
	}
	return usually
}

// A JoinRow is a join as the table has it.
type JoinRow struct {
	Key, Metadata              sql.NullString
	Expected, quorum           sql.NullInt64
	Completed, Failed          int
	Status, verdict            int
	Created, Updated           time.Time
	Attached, Members, Waiting int // by the rows of the other tables
}

// JoinRow reads one join and how many rows belong to it.
func (f *Fixture) JoinRow(id join.ID) (r JoinRow) {
	f.T.Helper()
	of := func(what, table string) string {
		return f.SQL("(SELECT %s FROM {%s} WHERE {join_id} = '%s')", what, table, id)
	}
	statement := f.SQL("SELECT {grouping_key}, {metadata}, {expected_steps}, {quorum}, {completed_steps}, {failed_steps}, {status}, {verdict}, %s, %s, "+
		of("{attached}", "size")+", "+of("COUNT(*)", "member")+", "+of("COUNT(*)", "wait")+" FROM {join} WHERE {join_id} = '%s'",
		f.JoinMillis("created"), f.JoinMillis("updated"), id)
	var created, updated int64
	f.NoError(f.DB.QueryRowContext(f.Context(), statement).Scan(&r.Key, &r.Metadata, &r.Expected, &r.quorum, &r.Completed, &r.Failed,
		&r.Status, &r.verdict, &created, &updated, &r.Attached, &r.Members, &r.Waiting), statement)
	r.Created, r.Updated = time.UnixMilli(created).UTC(), time.UnixMilli(updated).UTC()
	return r
}

// JoinMillis is the expression of a time column of joins in milliseconds since 1970.
func (f *Fixture) JoinMillis(column string) string {
	name, _ := f.joinName(column)
	switch f.DB.Name {
	case testdb.Postgres:
		return "floor(extract(epoch FROM " + name + ") * 1000)::bigint"
	case testdb.SQLServer:
		return "DATEDIFF_BIG(MILLISECOND, CAST('1970-01-01' AS DATETIME2(3)), " + name + ")"
	default:
		return name
	}
}

// JoinCount is the number of joins.
func (f *Fixture) JoinCount() int {
	f.T.Helper()
	return int(f.Number("SELECT COUNT(*) FROM {join}"))
}

// Steps are the states of the steps of a join.
func (f *Fixture) Steps(id join.ID) map[outbox.MessageID]join.StepStatus {
	f.T.Helper()
	name, _ := f.joinName("step")
	rows, err := f.DB.QueryContext(f.Context(), f.SQL("SELECT CAST("+name+" AS "+f.Either("text", "CHAR(36)")+"), {status} FROM {member} WHERE {join_id} = '%s'", id))
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

// Step is the state of one step, which must be there.
func (f *Fixture) Step(id join.ID, message outbox.MessageID) join.StepStatus {
	f.T.Helper()
	status, ok := f.Steps(id)[message]
	f.True(ok, "the message is no step")
	return status
}

// Backdate writes the times of a join into the past, so that a change of them shows.
func (f *Fixture) Backdate(id join.ID) {
	f.T.Helper()
	f.Equal(1, f.Exec("UPDATE {join} SET {created} = {past}, {updated} = {past} WHERE {join_id} = '%s'", id))
}
