package conformance

import (
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/inbox"
	"github.com/incursa/watermill-outbox/join"
)

func TestInbox_Requeue(t *testing.T) {
	forEachInbox(t, func(t *testing.T, f *inboxFixture) {
		f.received("dead", "also dead", "done", "held", "ready")
		claimed := f.claimWith(outbox.ClaimParams{Topics: quotas("ship"), Limit: 4})
		f.NoError(f.in.Queue().Fail(f.ctx(), claimed[0].Receipt.Owner, errors.New("never"), claimed[0].Receipt.Seq, claimed[1].Receipt.Seq))
		f.settle(settled(outbox.Ack, claimed[2])...)
		f.NoError(f.inTx(func(tx *sql.Tx) error { _, err := f.begin(tx, "at once"); return err }))
		before := f.rows("{status} <> 3")
		n, err := f.in.Requeue(f.ctx(), keyOf("dead"), keyOf("done"), keyOf("held"), keyOf("ready"), keyOf("at once"), keyOf("unknown"))
		f.NoError(err)
		f.Equal(1, n)
		e := f.entry(keyOf("dead"))
		f.Equal([]any{outbox.Ready, 0, "never"}, []any{e.Status, e.Attempts, e.LastError})
		f.Equal(outbox.Failed, f.entry(keyOf("also dead")).Status)
		f.Len(f.claim("ship"), 2)
		n, err = f.in.Requeue(f.ctx())
		f.NoError(err)
		f.Zero(n, "no keys, no messages")
		f.Equal(before[0], f.rows("{message_id} = '%s'", before[0].id)[0])
	})
}

func TestTrap_InboxPurgeSparesWhatHasNotEnded(t *testing.T) {
	forEachInbox(t, func(t *testing.T, f *inboxFixture) {
		f.received("done", "failed", "held", "deleted", "young", "back", "ready")
		claimed := f.claimWith(outbox.ClaimParams{Topics: quotas("ship"), Limit: 6})
		f.settle(settled(outbox.Ack, claimed[0], claimed[4], claimed[5])...)
		f.settle(settled(outbox.Fail, claimed[1])...)
		f.remove("{message_id} = '%s'", claimed[3].ID)
		f.NoError(f.inTx(func(tx *sql.Tx) error {
			_, err := f.begin(tx, "at once")
			_, again := f.begin(tx, "seen again")
			return errors.Join(err, again)
		}))
		direct := f.enqueueN("by itself", 1)[0] // of the queue alone
		f.settle(settled(outbox.Ack, f.claim("by itself")...)...)
		f.exec("UPDATE {entry} SET {first_seen_at} = {past}, {last_seen_at} = {past}")
		f.exec("UPDATE {outbox} SET {created_at} = {past}")
		f.exec("UPDATE {outbox_state} SET {processed_at} = {past} WHERE {seq} IN (SELECT {seq} FROM {all} WHERE {status} >= 2 AND {message_id} <> '%s')", claimed[4].ID)
		f.exec("UPDATE {entry} SET {last_seen_at} = {now} WHERE {message_id} = 'seen again' OR {message_id} = 'back'")

		purge := func(params outbox.PurgeParams) int {
			t.Helper()
			n, err := f.in.Purge(f.ctx(), params)
			f.NoError(err)
			return n
		}
		f.Zero(purge(outbox.PurgeParams{OlderThan: 2 * time.Hour}))
		left := func(ids ...string) {
			t.Helper()
			names, err := f.strings(f.db, f.sql("SELECT {message_id} FROM {entry}"))
			f.NoError(err)
			f.ElementsMatch(ids, names)
		}
		f.Equal(1, purge(outbox.PurgeParams{OlderThan: time.Minute, Failed: true}))
		left("done", "held", "deleted", "young", "back", "ready", "at once", "seen again")
		f.Empty(f.rows("{status} = 3"), "a message goes with its entry")
		f.Equal(3, purge(outbox.PurgeParams{OlderThan: time.Minute}), "done, deleted, at once")
		f.Zero(purge(outbox.PurgeParams{OlderThan: time.Minute}))
		left("held", "young", "back", "seen again", "ready")
		f.Len(f.rows("1 = 1"), 5, "held, young, back, ready, and the one by itself")
		f.Equal(3, purge(outbox.PurgeParams{}))
		f.Zero(purge(outbox.PurgeParams{Failed: true}))
		left("held", "ready")
		_, err := f.in.Purge(f.ctx(), outbox.PurgeParams{Log: true})
		f.requireField(err, "PurgeParams.Log")
		f.Equal([]int{1, 1, 1}, []int{len(f.rows("{status} = 0")), len(f.rows("{status} = 1")), len(f.rows("{message_id} = '%s'", direct))})
		f.received("done") // which is new again

		_, err = f.in.Purge(f.ctx(), outbox.PurgeParams{OlderThan: -1})
		f.requireField(err, "PurgeParams.OlderThan")
	})
}

// What a join of the queue's messages still needs stays, with its entry.
func TestInbox_PurgeSparesTheStepsOfAPendingJoin(t *testing.T) {
	forEachInbox(t, func(t *testing.T, f *inboxFixture) {
		config := f.inboxConfig("")
		config.WithJoins = true
		f.NoError(inbox.Migrate(f.ctx(), f.db.DB, config))
		c := f.joins()
		id := f.start(c, join.StartParams{ExpectedSteps: 2})
		f.NoError(c.Attach(f.ctx(), nil, id, f.received("1", "2")...))
		f.settle(settled(outbox.Ack, f.claimWith(outbox.ClaimParams{Topics: quotas("ship"), Limit: 1})...)...)
		n, err := f.in.Purge(f.ctx(), outbox.PurgeParams{})
		f.NoError(err)
		f.Zero(n)
		f.settle(settled(outbox.Ack, f.claim("ship")...)...)
		f.stands(c, id, join.Completed, 2, 0)
		n, err = f.in.Purge(f.ctx(), outbox.PurgeParams{})
		f.NoError(err)
		f.Equal(2, n)
		f.Zero(f.count() + f.countEntries())
	})
}

// Purge, Requeue and workers at the same time: nothing is purged that is alive, nothing is left without its entry.
func TestTrap_InboxPurgeAndRequeueAtOnce(t *testing.T) {
	forEachInbox(t, func(t *testing.T, f *inboxFixture) {
		n := 200
		if f.slow() {
			n = 20
		}
		var keys []inbox.Key
		var ids []string
		for i := range n {
			ids = append(ids, fmt.Sprint(i))
			keys = append(keys, keyOf(ids[i]))
		}
		f.received(ids...)
		for {
			claimed := f.claim("ship")
			if len(claimed) == 0 {
				break
			}
			f.settle(settled(outbox.Fail, claimed...)...)
		}
		var all sync.WaitGroup
		failures := make(chan error, 3)
		var requeued, purged atomic.Int64
		all.Go(func() {
			for i := 0; i < n; i += 5 {
				k, err := f.in.Requeue(f.ctx(), keys[i:i+5]...)
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
					k, err := f.in.Purge(f.ctx(), outbox.PurgeParams{Failed: true})
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
		f.Equal(int(requeued.Load()), f.countEntries())
		f.Equal(f.countEntries(), int(f.number("SELECT COUNT(*) FROM {all} WHERE {status} = 0 AND EXISTS (SELECT 1 FROM {entry} e WHERE e.{queue_id} = messages.{message_id})")))
		f.Equal(f.countEntries(), f.count())
	})
}
