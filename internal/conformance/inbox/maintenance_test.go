package inbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/inbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/faults"
	"github.com/incursa/watermill-outbox/join"
)

func TestInbox_Requeue(t *testing.T) {
	forEachInbox(t, func(t *testing.T, f *inboxFixture) {
		f.Received("dead", "also dead", "done", "held", "ready")
		claimed := f.ClaimWith(outbox.ClaimParams{Topics: suite.Quotas("ship"), Limit: 4})
		f.NoError(f.In.Queue().Fail(f.Context(), claimed[0].Receipt.Owner, errors.New("never"), claimed[0].Receipt.Seq, claimed[1].Receipt.Seq))
		f.Settle(suite.Settled(outbox.Ack, claimed[2])...)
		f.NoError(f.InTx(func(tx *sql.Tx) error { _, err := f.begin(tx, "at once"); return err }))
		before := f.Rows("{status} <> 3")
		n, err := f.In.Requeue(f.Context(), suite.KeyOf("dead"), suite.KeyOf("done"), suite.KeyOf("held"), suite.KeyOf("ready"), suite.KeyOf("at once"), suite.KeyOf("unknown"))
		f.NoError(err)
		f.Equal(1, n)
		e := f.Entry(suite.KeyOf("dead"))
		f.Equal([]any{outbox.Ready, 0, "never"}, []any{e.Status, e.Attempts, e.LastError})
		f.Equal(outbox.Failed, f.Entry(suite.KeyOf("also dead")).Status)
		f.Len(f.Claim("ship"), 2)
		n, err = f.In.Requeue(f.Context())
		f.NoError(err)
		f.Zero(n, "no keys, no messages")
		f.Equal(before[0], f.Rows("{message_id} = '%s'", before[0].ID)[0])
	})
}

func TestTrap_InboxPurgeSparesWhatHasNotEnded(t *testing.T) {
	forEachInbox(t, func(t *testing.T, f *inboxFixture) {
		f.Received("done", "failed", "held", "deleted", "young", "back", "ready")
		claimed := f.ClaimWith(outbox.ClaimParams{Topics: suite.Quotas("ship"), Limit: 6})
		f.Settle(suite.Settled(outbox.Ack, claimed[0], claimed[4], claimed[5])...)
		f.Settle(suite.Settled(outbox.Fail, claimed[1])...)
		f.Remove("{message_id} = '%s'", claimed[3].ID)
		f.NoError(f.InTx(func(tx *sql.Tx) error {
			_, err := f.begin(tx, "at once")
			_, again := f.begin(tx, "seen again")
			return errors.Join(err, again)
		}))
		direct := f.EnqueueN("by itself", 1)[0] // of the queue alone
		f.Settle(suite.Settled(outbox.Ack, f.Claim("by itself")...)...)
		f.Exec("UPDATE {entry} SET {first_seen_at} = {past}, {last_seen_at} = {past}")
		f.Exec("UPDATE {outbox} SET {created_at} = {past}")
		f.ExecStates("UPDATE {outbox_state} SET {processed_at} = {past} WHERE {seq} IN (SELECT {seq} FROM {all} WHERE {status} >= 2 AND {message_id} <> '%s')", claimed[4].ID)
		f.Exec("UPDATE {entry} SET {last_seen_at} = {now} WHERE {message_id} = 'seen again' OR {message_id} = 'back'")

		purge := func(params outbox.PurgeParams) int {
			t.Helper()
			n, err := f.In.Purge(f.Context(), params)
			f.NoError(err)
			return n
		}
		f.Zero(purge(outbox.PurgeParams{OlderThan: 2 * time.Hour}))
		left := func(ids ...string) {
			t.Helper()
			names, err := f.Strings(f.DB, f.SQL("SELECT {message_id} FROM {entry}"))
			f.NoError(err)
			f.ElementsMatch(ids, names)
		}
		f.Equal(1, purge(outbox.PurgeParams{OlderThan: time.Minute, Failed: true}))
		left("done", "held", "deleted", "young", "back", "ready", "at once", "seen again")
		f.Empty(f.Rows("{status} = 3"), "a message goes with its entry")
		f.Equal(3, purge(outbox.PurgeParams{OlderThan: time.Minute}), "done, deleted, at once")
		f.Zero(purge(outbox.PurgeParams{OlderThan: time.Minute}))
		left("held", "young", "back", "seen again", "ready")
		f.Len(f.Rows("1 = 1"), 5, "held, young, back, ready, and the one by itself")
		f.Equal(3, purge(outbox.PurgeParams{}))
		f.Zero(purge(outbox.PurgeParams{Failed: true}))
		left("held", "ready")
		_, err := f.In.Purge(f.Context(), outbox.PurgeParams{Log: true})
		f.RequireField(err, "PurgeParams.Log")
		f.Equal([]int{1, 1, 1}, []int{len(f.Rows("{status} = 0")), len(f.Rows("{status} = 1")), len(f.Rows("{message_id} = '%s'", direct))})
		f.Received("done") // which is new again

		_, err = f.In.Purge(f.Context(), outbox.PurgeParams{OlderThan: -1})
		f.RequireField(err, "PurgeParams.OlderThan")
	})
}

// Each batch begins where the one before ended, and not again with all entries that are kept.
func TestTrap_InboxPurgeBehindManyThatAreKept(t *testing.T) {
	forEachInbox(t, func(t *testing.T, f *inboxFixture) {
		const kept, dead = 5, 2500
		names := make([]string, kept+dead)
		for i := range names {
			names[i] = fmt.Sprint(i)
		}
		f.Received(names[:kept]...)
		f.Exec("UPDATE {entry} SET {first_seen_at} = {past}, {last_seen_at} = {past}")
		for batch := range slices.Chunk(names[kept:], 500) {
			f.Received(batch...)
		}
		failed := f.ClaimWith(outbox.ClaimParams{Topics: suite.Quotas("ship"), Limit: kept})
		f.Settle(suite.Settled(outbox.Ack, failed...)...)
		for range dead / 500 {
			failed = f.ClaimWith(outbox.ClaimParams{Topics: suite.Quotas("ship"), Limit: 500})
			f.Empty(f.Settle(suite.Settled(outbox.Fail, failed...)...))
		}
		batches := map[string]bool{} // from the beginning, and from where one has ended
		pool := faults.Open(t, f.DB, faults.Hooks{Before: func(_ context.Context, s faults.Statement) error {
			if arg := fmt.Sprint(s.Args...); strings.Contains(arg, `"status":3`) {
				batches[arg] = strings.Contains(arg, `"after":`)
			}
			return nil
		}})
		n, err := f.Open(pool, "", nil).Purge(f.Context(), outbox.PurgeParams{Failed: true})
		f.NoError(err)
		f.Equal(dead, n)
		f.Equal(kept, f.CountEntries())
		f.Greater(len(batches), 2)
		beginnings := 0
		for _, continues := range batches {
			if !continues {
				beginnings++
			}
		}
		f.Equal(1, beginnings)
	})
}

// What a join of the queue's messages still needs stays, with its entry.
func TestInbox_PurgeSparesTheStepsOfAPendingJoin(t *testing.T) {
	forEachInbox(t, func(t *testing.T, f *inboxFixture) {
		config := f.InboxConfig("")
		config.WithJoins = true
		f.NoError(inbox.Migrate(f.Context(), f.DB.DB, config))
		c := f.Joins()
		id := f.Start(c, join.StartParams{ExpectedSteps: 2})
		f.NoError(c.Attach(f.Context(), nil, id, f.Received("1", "2")...))
		f.Settle(suite.Settled(outbox.Ack, f.ClaimWith(outbox.ClaimParams{Topics: suite.Quotas("ship"), Limit: 1})...)...)
		n, err := f.In.Purge(f.Context(), outbox.PurgeParams{})
		f.NoError(err)
		f.Zero(n)
		f.Settle(suite.Settled(outbox.Ack, f.Claim("ship")...)...)
		f.Stands(c, id, join.Completed, 2, 0)
		n, err = f.In.Purge(f.Context(), outbox.PurgeParams{})
		f.NoError(err)
		f.Equal(2, n)
		f.Zero(f.Count() + f.CountEntries())
	})
}

// Purge, Requeue and workers at the same time: nothing is purged that is alive, nothing is left without its entry.
func TestTrap_InboxPurgeAndRequeueAtOnce(t *testing.T) {
	forEachInbox(t, func(t *testing.T, f *inboxFixture) {
		n := 200
		if f.Slow() {
			n = 20
		}
		var keys []inbox.Key
		var ids []string
		for i := range n {
			ids = append(ids, fmt.Sprint(i))
			keys = append(keys, suite.KeyOf(ids[i]))
		}
		f.Received(ids...)
		for {
			claimed := f.Claim("ship")
			if len(claimed) == 0 {
				break
			}
			f.Settle(suite.Settled(outbox.Fail, claimed...)...)
		}
		var all sync.WaitGroup
		failures := make(chan error, 3)
		var requeued, purged atomic.Int64
		all.Go(func() {
			for i := 0; i < n; i += 5 {
				k, err := f.In.Requeue(f.Context(), keys[i:i+5]...)
				requeued.Add(int64(k))
				if err != nil {
					failures <- err
					return
				}
			}
		})
		for range 2 {
			all.Go(func() {
				for range 20 {
					k, err := f.In.Purge(f.Context(), outbox.PurgeParams{Failed: true})
					purged.Add(int64(k))
					if err != nil {
						failures <- err
						return
					}
				}
			})
		}
		all.Wait()
		close(failures)
		for err := range failures {
			f.NoError(err)
		}
		f.Equal(n, int(requeued.Load()+purged.Load()), "each was one or the other")
		f.Equal(int(requeued.Load()), f.CountEntries())
		f.Equal(f.CountEntries(), int(f.Number("SELECT COUNT(*) FROM {all} WHERE {status} = 0 AND EXISTS (SELECT 1 FROM {entry} e WHERE e.{queue_id} = messages.{message_id})")))
		f.Equal(f.CountEntries(), f.Count())
	})
}
