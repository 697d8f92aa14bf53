package log_test

import (
	"context"
	"strings"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/faults"
	"github.com/incursa/watermill-outbox/internal/seam"
)

// The log has no index by age, and janitors ask every minute: each purge ends at the first young position, and a batch
// begins where the one before it ended.
func TestTrap_ALogPurgeEndsAtTheFirstYoungPosition(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		purges := func(n int) {
			t.Helper()
			purged, err := f.Outbox.Purge(f.Context(), outbox.PurgeParams{Log: true, OlderThan: 30 * time.Minute})
			f.NoError(err)
			f.Equal(n, purged)
		}
		left := func() int { return int(f.Number("SELECT COUNT(*) FROM %s", f.LogTable(""))) }
		f.LogN("slow", 0, 10)
		f.LogN("orders", 0, 2500)
		f.LogN("slow", 10, 20)
		f.LogN("orders", 2500, 2600)
		f.Stamp()
		cursor := f.groupBegins("lags", "slow")
		f.NoError(cursor.Advance(f.Context(), f.DB.DB, 0, 4))
		purges(0)

		const young = 2540
		f.Exec("UPDATE %s SET {logged_at} = {past} WHERE {position} <> %d", f.LogTable(""), young)
		purges(4 + 2500 + young - 2521)
		f.Equal(6+10+2620-young+1, left(), "what the group has not passed, and all from the young position on")
		purges(0)

		f.Exec("UPDATE %s SET {logged_at} = {past}", f.LogTable(""))
		f.NoError(f.Outbox.ForgetGroup(f.Context(), "lags"))
		purges(6 + 10 + 2620 - young + 1)
		f.Zero(f.Count(), "the messages were for the log alone")
	})
}

// A purge goes past what a group has yet to read, a bounded number of positions at a time.
func TestTrap_ALogPurgeGoesPastWhatIsKept(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		const lags, read = 2500, 10
		f.LogN("slow", 0, lags)
		f.LogN("orders", 0, read)
		f.Stamp()
		f.groupBegins("lags", "slow")
		f.Exec("UPDATE %s SET {logged_at} = {past}", f.LogTable(""))
		calls := 0
		pool := faults.Open(t, f.DB, faults.Hooks{Before: func(_ context.Context, s faults.Statement) error {
			if strings.Contains(strings.ToLower(s.Text), "log_purge") || strings.Contains(s.Text, "RETURNING 1, 0") {
				calls++
			}
			return nil
		}})
		purged, err := f.NewOutbox(pool).Purge(f.Context(), outbox.PurgeParams{Log: true, OlderThan: time.Minute})
		f.NoError(err)
		f.Equal(read, purged)
		f.EqualValues(lags, f.Number("SELECT COUNT(*) FROM %s", f.LogTable("")))
		f.Equal((lags+read)/1000+1, calls)
	})
}

// Forgetting a group forgets all its dead letters, however many batches they are, and none of another group.
func TestTrap_AGroupWithManyDeadLettersIsForgotten(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		const n = 2100
		f.LogN("orders", 0, n)
		f.Stamp()
		for _, group := range []string{"one", "two"} {
			f.Exec("INSERT INTO %s ({group_name}, {topic}, {position}, {message_id}, {attempts}, {failed_at}) SELECT '%s', {topic}, {position}, {message_id}, 1, {logged_at} FROM %s",
				f.LogTable("dead"), group, f.LogTable(""))
		}
		dead := func(group string) int64 {
			return f.Number("SELECT COUNT(*) FROM %s WHERE {group_name} = '%s'", f.LogTable("dead"), group)
		}
		f.EqualValues(n, dead("one"))
		f.NoError(f.Outbox.ForgetGroup(f.Context(), "one"))
		f.Zero(dead("one"))
		f.EqualValues(n, dead("two"))
	})
}

// groupBegins makes a consumer group that has read nothing of a topic.
func (f *fixture) groupBegins(group, topic string) seam.Cursor[outbox.LogMessage] {
	f.T.Helper()
	cursor, err := seam.NewCursor[outbox.LogMessage](f.Outbox, seam.CursorConfig{Group: group, Topic: topic})
	f.NoError(err)
	_, err = cursor.Acquire(f.Context())
	f.NoError(err)
	return cursor
}
