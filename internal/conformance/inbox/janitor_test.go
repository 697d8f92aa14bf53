package inbox_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/inbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/seam"
	"github.com/incursa/watermill-outbox/join"
)

// ended leaves something of everything that a janitor purges, all of an hour ago, and something that lives of each.
func (f *inboxFixture) ended() {
	f.T.Helper()
	config := f.InboxConfig("")
	config.WithJoins = true
	f.NoError(inbox.Migrate(f.Context(), f.DB.DB, config))
	c := f.Joins()
	f.StartWith(c, "steps of one that is pending", 1)
	over := f.Start(c, join.StartParams{Open: true})
	f.NoError(c.Seal(f.Context(), nil, over))
	f.Backdate(over)

	f.Received("done", "failed", "ready")
	claimed := f.ClaimWith(outbox.ClaimParams{Topics: suite.Quotas("ship"), Limit: 2})
	f.Settle(suite.Settled(outbox.Ack, claimed[0])...)
	f.Settle(suite.Settled(outbox.Fail, claimed[1])...)
	f.NoError(f.InTx(func(tx *sql.Tx) error { _, err := f.begin(tx, "at once"); return err }))
	f.Exec("UPDATE {entry} SET {first_seen_at} = {past}, {last_seen_at} = {past}")

	f.EnqueueLogged(f.LogOutbox(), "logged", "1", "2", "3")
	f.EnqueueN("by itself", 1)
	f.Settle(suite.Settled(outbox.Ack, f.Claim("by itself")...)...)
	s, err := outbox.NewSequencer(f.DB.DB, outbox.SequencerConfig{Dialect: f.Config.Dialect, Schema: f.Config.Schema, Table: f.Config.Table}, nil)
	f.NoError(err)
	_, err = seam.Sequencer(s).Stamp(f.Context())
	f.NoError(err)
	cursor, err := seam.NewCursor[outbox.LogMessage](f.Outbox, seam.CursorConfig{Group: "slow", Topic: "logged"})
	f.NoError(err)
	_, err = cursor.Acquire(f.Context())
	f.NoError(err)
	f.NoError(cursor.Advance(f.Context(), f.DB.DB, 0, 2))
	f.Exec("UPDATE %s SET {logged_at} = {past}", f.LogTable(""))
	f.Exec("UPDATE {outbox} SET {created_at} = {past}")
	f.ExecStates("UPDATE {outbox_state} SET {processed_at} = {past} WHERE {status} IN (2, 3)")
}

func TestJanitor_EachPartHasARetention(t *testing.T) {
	forEachInbox(t, func(t *testing.T, f *inboxFixture) {
		f.ended()
		f.Empty(f.PurgeOnce(outbox.JanitorConfig{}), "all is younger than 7 days")
		const old = 30 * time.Minute
		f.Empty(f.PurgeOnce(outbox.JanitorConfig{
			Done: -1, Failed: -1, Log: -1, Joins: -1, Entries: -1}))
		f.Equal(map[string]int{"log": 2}, f.PurgeOnce(outbox.JanitorConfig{Log: old}), "the group has not passed the third")
		f.Equal(map[string]int{"joins": 1}, f.PurgeOnce(outbox.JanitorConfig{Joins: old}))
		f.Equal(map[string]int{"entries": 2}, f.PurgeOnce(outbox.JanitorConfig{Entries: old}))
		f.Equal(map[string]int{"messages": 1}, f.PurgeOnce(outbox.JanitorConfig{Done: old}))
		f.Equal(map[string]int{"failed entries": 1}, f.PurgeOnce(outbox.JanitorConfig{Failed: old}))
		f.Equal(1, f.CountEntries())
		f.Equal(3, f.Count(), "one is ready, one a step of a pending join, one not read yet")

		boom := errors.New("boom")
		purged, err := f.Outbox.PurgeOnce(f.Context(), outbox.JanitorConfig{Also: map[string]func(context.Context) (int, error){
			"sessions": func(context.Context) (int, error) { return 7, boom }}})
		f.ErrorIs(err, boom)
		f.Equal(map[string]int{"sessions": 7}, purged)
	})
}
