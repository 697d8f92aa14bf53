package queue_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/testdb"
)

// keepsDeadEntries: an open snapshot makes the database keep the index entries of rows that have been claimed, and it
// counts what it reads of them.
var keepsDeadEntries = suite.NewCapability("dead index entries under an open snapshot", func(_ context.Context, db *testdb.DB) (string, error) {
	if db.Name == testdb.Postgres {
		return "", nil
	}
	return "it keeps none, or does not count what it reads of them", nil
})

// Beside an open snapshot, such as that of a dump, each claim read again the entries of all that had been claimed since.
func TestLong_ClaimsBesideAnOldSnapshot(t *testing.T) {
	forEachEmpty(t, func(t *testing.T, f *fixture) {
		f.Needs(keepsDeadEntries)
		f = &fixture{f.Alone()}
		const messages, inFlight = 2000, 10
		ids := f.EnqueueN("orders", messages)
		// Due one a second, so that an overlap of a second is one message; copied, so that no dead entry is left of the update.
		f.Exec("UPDATE {outbox} SET {due_at} = now() - ((%d - {seq}) || ' seconds')::interval", messages)
		f.Exec("CREATE TABLE copied AS SELECT * FROM {outbox_state}")
		f.Exec("UPDATE copied SET {next_attempt_at} = (SELECT o.{due_at} FROM {outbox} o WHERE o.{seq} = copied.{seq})")
		f.Exec("TRUNCATE {outbox_state}")
		f.Exec("INSERT INTO {outbox_state} ({seq}, {topic_key}, {next_attempt_at}) SELECT {seq}, {topic_key}, {next_attempt_at} FROM copied")

		snapshot, err := f.DB.BeginTx(f.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
		f.NoError(err)
		_, err = snapshot.ExecContext(f.Context(), "SELECT 1")
		f.NoError(err)

		pool := f.DB.Reopen(t)
		sub := f.SubscriberOn(pool.DB, nil, func(c *outbox.SubscriberConfig) { c.MaxInFlight = inFlight })
		begun := time.Now()
		queue := f.Subscribe(sub, "orders")
		for range ids {
			f.Receive(queue).Ack()
		}
		f.Settles(ids)
		f.NoError(sub.Close())
		seconds := int(time.Since(begun).Seconds()) + 1
		f.NoError(pool.Close())
		f.NoError(snapshot.Rollback())

		var read int
		f.Eventually(func() bool { // a connection tells what it has read when it has ended
			f.NoError(f.DB.QueryRowContext(f.Context(), `SELECT idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = 'outbox_ready'`).Scan(&read))
			return read >= messages
		}, suite.Patience, 10*time.Millisecond)
		t.Logf("%d entries read", read)
		f.Less(read, (4+seconds)*messages, "claims read what they take, and all that is dead once a second, of which there were %d", seconds)
	})
}
