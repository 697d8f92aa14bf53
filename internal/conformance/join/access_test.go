package join_test

import (
	"fmt"
	"testing"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/join"
)

// The role that suffices for messages suffices for joins, from their start to their purge.
func TestOBX117_118_TheRoleSufficesForJoins(t *testing.T) {
	forEachEmpty(t, func(t *testing.T, f *fixture) {
		f.Needs(suite.ExecuteAs)
		f.Config.Table = "box_" + f.Config.Schema
		f.Outbox = f.NewOutbox(f.DB.DB)
		f.Migrate()
		script, err := outbox.RoleSQL(f.MigrateConfig())
		f.NoError(err)
		f.NoError(f.Run(script))
		role := f.Schema() + "_" + f.Config.Table + f.Either("_role", "_Role")
		member, stranger := f.User(role), f.User("")
		t.Cleanup(func() {
			if f.DB.Name == testdb.Postgres {
				f.Drop("DROP OWNED BY " + role)
			}
			f.Drop("DROP ROLE " + role)
		})

		c := f.Joins()
		id, steps := f.StartWith(c, "s", 3)
		wait := f.Wait(c, suite.Waits(id, "next", ""))
		claimed := f.Claim("s")
		calls := f.joinCalls(id, steps, wait, claimed)
		f.Len(f.LacksRightTo(stranger, calls...), len(calls), "without the role nothing is allowed")
		f.Stands(c, id, join.Pending, 0, 0)

		f.Empty(f.LacksRightTo(member, calls...))
		f.Zero(f.JoinCount(), "both have ended and are purged")
		f.Len(f.Rows("{status} = 2"), 2, "a step and the wait")
		denied := []string{
			"DROP TABLE " + f.SQL("{join}"), "ALTER TABLE " + f.SQL("{member}") + " ADD n INT", "DROP VIEW " + f.Object(f.Either("outbox_kept", "Outbox_Kept")),
		}
		f.Len(f.LacksRightTo(member, denied...), len(denied))
		if f.DB.Name == testdb.SQLServer {
			f.Len(f.LacksRightTo(member, "DELETE FROM "+f.SQL("{join}")), 1, "the procedures are the only way")
		}
	})
}

// joinCalls are a whole life of a join, which ends it and deletes it, and the other calls there are.
func (f *fixture) joinCalls(id join.ID, steps []outbox.MessageID, wait outbox.MessageID, claimed []outbox.Claimed) (calls []string) {
	newID, err := f.Config.Dialect.Traits().NewMessageID()
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
		calls = append(calls, f.CallOf(call[0], call[1]))
	}
	// The wait is done by a claim of the role's own.
	owner := base.NewOwnerToken()
	calls = append(calls, f.CallOf("claim", fmt.Sprintf(`{"owner":"%s","lease_ms":60000,"limit":4,"give_back":0,"worker":"w","topics":[{"key":%d,"quota":10}]}`, owner, testdb.TopicKey("join.wait"))),
		f.CallOf("settle", fmt.Sprintf(`{"worker":"w","backoff_ms":1,"backoff_max_ms":1,"delete_acked":false,"groups":[{"owner":"%s","outcome":0,"seqs":[%d]}]}`,
			owner, f.Row(wait).Seq)))
	return append(calls, f.CallOf("join_purge", `{"older_than_ms":-60000,"limit":1000}`))
}
