package log_test

import (
	"testing"

	"github.com/incursa/watermill-outbox/internal/testdb"
)

// Forgetting a group locked its dead letters as they lie in the table, and whoever requeued or discarded some, in order of their
// positions: each could wait for the other.
func TestTrap_DeadLettersAreLockedInOneOrder(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		if f.DB.Name != testdb.Postgres {
			return // SQLite has one writer, and on SQL Server the statement names its index
		}
		dead := f.LogTable("dead")
		for _, position := range []int{7, 3} {
			f.Exec("INSERT INTO %s (group_name, topic, position, message_id, attempts) VALUES ('g', 't', %d, gen_random_uuid(), 1)", dead, position)
		}
		tx, err := f.DB.BeginTx(f.Context(), nil)
		f.NoError(err)
		defer func() { _ = tx.Rollback() }()
		f.ExecOn(tx, "UPDATE %s SET attempts = 2 WHERE position = 3", dead)
		forgetting := f.Lane("")
		forgotten := forgetting.Run(func() error {
			_, err := forgetting.DB.ExecContext(f.Context(), f.CallOf("log_forget", `{"group":"g"}`))
			return err
		})
		forgetting.Blocked(forgotten)
		f.EqualValues(1, f.Number("SELECT COUNT(*) FROM (SELECT FROM %s WHERE position = 7 FOR UPDATE SKIP LOCKED) AS free", dead))
		f.NoError(tx.Commit())
		forgetting.Ended(forgotten)
		f.Zero(f.Number("SELECT COUNT(*) FROM %s", dead))
	})
}
