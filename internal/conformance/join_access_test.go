package conformance

import (
	"fmt"
	"testing"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/join"
)

// The role that suffices for messages suffices for joins, from their start to their purge.
func TestOBX117_118_TheRoleSufficesForJoins(t *testing.T) {
	forEachEmpty(t, func(t *testing.T, f *fixture) {
		f.needs(executeAs)
		f.config.Table = "box_" + f.config.Schema
		f.outbox = f.newOutbox(f.db.DB)
		f.migrate()
		script, err := outbox.RoleSQL(f.migrateConfig())
		f.NoError(err)
		f.NoError(f.run(script))
		role := f.schema() + "_" + f.config.Table + f.either("_role", "_Role")
		member, stranger := f.user(role), f.user("")
		t.Cleanup(func() {
			if f.db.Name == testdb.Postgres {
				f.drop("DROP OWNED BY " + role)
			}
			f.drop("DROP ROLE " + role)
		})

		c := f.joins()
		id, steps := f.startWith(c, "s", 3)
		wait := f.wait(c, waits(id, "next", ""))
		claimed := f.claim("s")
		calls := f.joinCalls(id, steps, wait, claimed)
		f.Len(f.lacksRightTo(stranger, calls...), len(calls), "without the role nothing is allowed")
		f.stands(c, id, join.Pending, 0, 0)

		f.Empty(f.lacksRightTo(member, calls...))
		f.Zero(f.joinCount(), "both have ended and are purged")
		f.Len(f.rows("{status} = 2"), 2, "a step and the wait")
		denied := []string{
			"DROP TABLE " + f.sql("{join}"), "ALTER TABLE " + f.sql("{member}") + " ADD n INT", "DROP VIEW " + f.object(f.either("outbox_kept", "Outbox_Kept")),
		}
		f.Len(f.lacksRightTo(member, denied...), len(denied))
		if f.db.Name == testdb.SQLServer {
			f.Len(f.lacksRightTo(member, "DELETE FROM "+f.sql("{join}")), 1, "the procedures are the only way")
		}
	})
}

// joinCalls are a whole life of a join, which ends it and deletes it, and the other calls there are.
func (f *fixture) joinCalls(id join.ID, steps []outbox.MessageID, wait outbox.MessageID, claimed []outbox.Claimed) (calls []string) {
	newID, err := f.config.Dialect.Traits().NewMessageID()
	f.NoError(err)
	settle := func(i, outcome int) string {
		return fmt.Sprintf(`{"worker":"w","backoff_ms":1,"backoff_max_ms":1,"delete_acked":false,"groups":[{"owner":"%s","outcome":%d,"seqs":[%d]}]}`,
			claimed[i].Receipt.Owner, outcome, claimed[i].Receipt.Seq)
	}
	for _, call := range [][2]string{
		{"join_start", fmt.Sprintf(`{"id":"%s","expected":1,"fail_fast":false}`, newID)},
		{"join_attach", fmt.Sprintf(`{"id":"%s","messages":["%s"],"by_report":false,"fresh":false}`, newID, steps[0])},
		{"join_wait", fmt.Sprintf(`{"id":"%s","message":"%s","recheck_ms":1000,"claimed":false}`, id, wait)},
		{"join_list", fmt.Sprintf(`{"id":"%s","limit":1}`, id)},
		{"join_members", fmt.Sprintf(`{"id":"%s","limit":10}`, id)},
		{"join_report", fmt.Sprintf(`{"id":"%s","message":"%s","failed":false}`, id, steps[2])},
		{"settle", settle(1, 3)},
		{"join_seal", fmt.Sprintf(`{"id":"%s"}`, id)},
		{"settle", settle(0, 0)}, // ends both joins and wakes the wait
		{"join_cancel", fmt.Sprintf(`{"id":"%s"}`, id)},
	} {
		calls = append(calls, f.callOf(call[0], call[1]))
	}
	// The wait is done by a claim of the role's own.
	owner := base.NewOwnerToken()
	calls = append(calls, f.callOf("claim", fmt.Sprintf(`{"owner":"%s","lease_ms":60000,"limit":4,"give_back":0,"worker":"w","topics":[{"key":%d,"quota":10}]}`, owner, testdb.TopicKey("join.wait"))),
		f.callOf("settle", fmt.Sprintf(`{"worker":"w","backoff_ms":1,"backoff_max_ms":1,"delete_acked":false,"groups":[{"owner":"%s","outcome":0,"seqs":[%d]}]}`,
			owner, f.row(wait).seq)))
	return append(calls, f.callOf("join_purge", `{"older_than_ms":-60000,"limit":1000}`))
}

// callOf is the statement that calls a procedure with its one argument.
func (f *fixture) callOf(name, argument string) string {
	if f.db.Name == testdb.SQLServer {
		return "EXEC " + f.object("Outbox_"+name) + " N'" + argument + "'"
	}
	return "SELECT * FROM " + f.object("outbox_"+name) + "('" + argument + "')"
}
