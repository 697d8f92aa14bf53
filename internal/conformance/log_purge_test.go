package conformance

import (
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/seam"
)

// The log has no index by age, and janitors ask every minute: each purge ends at the first young position, and a batch
// begins where the one before it ended.
func TestTrap_ALogPurgeEndsAtTheFirstYoungPosition(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		purges := func(n int) {
			t.Helper()
			purged, err := f.outbox.Purge(f.ctx(), outbox.PurgeParams{Log: true, OlderThan: 30 * time.Minute})
			f.NoError(err)
			f.Equal(n, purged)
		}
		left := func() int { return int(f.number("SELECT COUNT(*) FROM %s", f.logTable(""))) }
		f.logN("slow", 0, 10)
		f.logN("orders", 0, 2500)
		f.logN("slow", 10, 20)
		f.logN("orders", 2500, 2600)
		f.stamp()
		cursor, err := seam.NewCursor[outbox.LogMessage](f.outbox, seam.CursorConfig{Group: "lags", Topic: "slow"})
		f.NoError(err)
		_, err = cursor.Acquire(f.ctx())
		f.NoError(err)
		f.NoError(cursor.Advance(f.ctx(), f.db.DB, 0, 4))
		purges(0)

		const young = 2540
		f.exec("UPDATE %s SET {logged_at} = {past} WHERE {position} <> %d", f.logTable(""), young)
		purges(4 + 2500 + young - 2521)
		f.Equal(6+10+2620-young+1, left(), "what the group has not passed, and all from the young position on")
		purges(0)

		f.exec("UPDATE %s SET {logged_at} = {past}", f.logTable(""))
		f.NoError(f.outbox.ForgetGroup(f.ctx(), "lags"))
		purges(6 + 10 + 2620 - young + 1)
		f.Zero(f.count(), "the messages were for the log alone")
	})
}
