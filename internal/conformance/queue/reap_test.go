package queue_test

import (
	"context"
	"errors"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
)

func TestOBX043_044_045_ReapGivesBackWhatHasExpired(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.EnqueueN("orders", 5)
		expired := f.Claim("orders")
		f.ExpireLeases()
		f.EnqueueN("orders", 2)
		held := f.ClaimWith(outbox.ClaimParams{Topics: suite.Quotas("orders"), GiveBack: -1})
		f.Len(held, 2)

		n, err := f.Outbox.ReapExpired(f.Context())
		f.NoError(err)
		f.Equal(5, n)
		for _, c := range expired {
			r := f.Row(c.ID)
			f.Equal(int(outbox.Ready), r.Status)
			f.False(r.HasOwner || r.HasLease)
			f.Equal(1, r.Retries, "a reap counts an attempt")
			f.NotEmpty(r.LastError)
		}
		for _, c := range held {
			f.Equal(int(outbox.InProgress), f.Row(c.ID).Status)
		}
		f.Equal(suite.MessageIDs(expired), suite.MessageIDs(f.ClaimWith(outbox.ClaimParams{Topics: suite.Quotas("orders"), GiveBack: -1})))
		n, err = f.Outbox.ReapExpired(f.Context())
		f.NoError(err)
		f.Zero(n)
	})
}

func TestOBX043_ReapTakesAnyNumberInSmallBatches(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.EnqueueN("orders", 1100)
		for range 2 {
			f.ClaimWith(outbox.ClaimParams{Topics: suite.Quotas("orders"), Limit: 1000})
		}
		f.Empty(f.Rows("{status} <> 1"))
		f.ExpireLeases()
		n, err := f.Outbox.ReapExpired(f.Context())
		f.NoError(err)
		f.Equal(1100, n)
		f.Empty(f.Rows("{status} <> 0"))
	})
}

// What comes back from a worker that died comes back at moments of its own, further apart with each attempt.
func TestWhatHasExpiredComesBackApart(t *testing.T) {
	giveBack := map[string]func(*fixture, *outbox.Outbox) error{
		"reap": func(f *fixture, o *outbox.Outbox) error {
			_, err := o.ReapExpired(f.Context())
			return err
		},
		"claim": func(f *fixture, o *outbox.Outbox) error {
			_, err := o.Claim(f.Context(), outbox.ClaimParams{Topics: suite.Quotas("another"), GiveBack: 200})
			return err
		},
	}
	forEach(t, func(t *testing.T, f *fixture) {
		o := f.NewOutbox(f.DB.DB, func(c *outbox.Config) { c.ExpiryBackoff = outbox.ExponentialBackoff(time.Hour, 4*time.Hour) })
		for name, giveBack := range giveBack {
			f.EnqueueN(name, 80)
			f.Len(f.Claim(name), 80)
			f.Exec("UPDATE {outbox_state} SET {retry_count} = CASE WHEN {seq} %% 2 = 0 THEN 0 ELSE 9 END WHERE {seq} IN (SELECT {seq} FROM {all} WHERE {topic} = '%s')", name)
			f.Exec("UPDATE {outbox_lease} SET {locked_until} = {past} WHERE {owner_token} IN (SELECT {owner_token} FROM {all} WHERE {topic} = '%s')", name)
			before := f.Now()
			f.NoError(giveBack(f, o))
			after := f.Now()
			at := map[time.Time]bool{}
			late := 0
			for _, r := range f.Rows("{topic} = '%s'", name) {
				f.Equal(int(outbox.Ready), r.Status)
				if r.Retries == 1 {
					f.Between(before, after.Add(time.Hour), r.NextAttempt)
				} else {
					f.Between(before, after.Add(4*time.Hour), r.NextAttempt)
				}
				if r.NextAttempt.After(after.Add(time.Hour)) {
					late++
				}
				at[r.NextAttempt] = true
			}
			f.Greater(len(at), 40, "%s: moments", name)
			f.Greater(late, 10, "%s: those that have spent more attempts wait longer", name)
			f.Empty(f.Claim(name), "%s: all are claimed again at once", name)
		}
	})
}

func TestOBX046_ReapLeavesAloneWhatHasEnded(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		done, failed := f.ClaimOne("orders"), f.ClaimOne("orders")
		f.Settle(append(suite.Settled(outbox.Ack, done), suite.Settled(outbox.Fail, failed)...)...)
		before := f.Rows("1 = 1")
		n, err := f.Outbox.ReapExpired(f.Context())
		f.NoError(err)
		f.Zero(n)
		f.Equal(before, f.Rows("1 = 1"))
	})
}

func TestRenewExtendsWhatIsHeldAndAnswersWhatIsLost(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		held, lost, expired := f.ClaimOne("held"), f.ClaimOne("lost"), f.ClaimOne("expired")
		f.Exec("UPDATE {outbox_lease} SET {locked_until} = {past} WHERE {owner_token} IN (SELECT {owner_token} FROM {all} WHERE {topic} = 'lost')")
		again := f.Claim("lost")
		f.Len(again, 1)
		f.Exec("UPDATE {outbox_lease} SET {locked_until} = {past} WHERE {owner_token} IN (SELECT {owner_token} FROM {all} WHERE {topic} = 'expired')")
		unknown := outbox.Receipt{Seq: 1 << 40, Owner: base.NewOwnerToken()}

		before := f.Now()
		refused, err := f.Outbox.Renew(f.Context(), 2*time.Hour, held.Receipt, lost.Receipt, expired.Receipt, unknown)
		f.NoError(err)
		f.ElementsMatch([]outbox.WorkItemID{lost.Receipt.Seq, unknown.Seq}, refused)
		for _, c := range []outbox.Claimed{held, expired} { // expiry alone refuses nothing: nobody has taken it
			f.Between(before.Add(2*time.Hour), f.Now().Add(2*time.Hour), f.Row(c.ID).LockedUntil)
			f.Equal(c.Receipt.Owner, f.Row(c.ID).Owner)
		}
		f.Between(before.Add(-time.Hour), before.Add(time.Hour), f.Row(lost.ID).LockedUntil)
		f.Equal(again[0].Receipt.Owner, f.Row(lost.ID).Owner)

		for _, lease := range []time.Duration{0, -1, 25 * time.Hour} {
			_, err := f.Outbox.Renew(f.Context(), lease, held.Receipt)
			f.RequireField(err, "lease")
		}
		refused, err = f.Outbox.Renew(f.Context(), time.Hour)
		f.NoError(err)
		f.Empty(refused)
	})
}

// A handler that settles in its own transaction has its row locked. That holds up the renewal of no other, and does not
// count as lost.
func TestRenewPassesOverLockedRows(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Needs(suite.SkipLocked, suite.UpdatesSkipLocked)
		locked, other, lost := f.ClaimOne("a"), f.ClaimOne("b"), f.ClaimOne("c")
		f.Steal("{topic} = 'c'")
		tx, err := f.DB.BeginTx(f.Context(), nil)
		f.NoError(err)
		defer func() { _ = tx.Rollback() }() // for a failure before the end
		_, err = f.Outbox.Settle(f.Context(), tx, suite.Settled(outbox.Ack, locked))
		f.NoError(err)
		ctx, cancel := context.WithTimeout(f.Context(), suite.Patience)
		defer cancel()
		refused, err := f.Outbox.Renew(ctx, 2*time.Hour, locked.Receipt, other.Receipt, lost.Receipt)
		f.NoError(err)
		f.Equal([]outbox.WorkItemID{lost.Receipt.Seq}, refused)
		f.Greater(f.Row(other.ID).LockedUntil.Sub(f.Now()), time.Hour)
		f.NoError(tx.Commit())
		refused, err = f.Outbox.Renew(f.Context(), 2*time.Hour, locked.Receipt)
		f.NoError(err)
		f.Len(refused, 1, "now it has ended")
	})
}

func TestRequeueMakesFailedMessagesReadyWithAFreshBudget(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		fail := func(topic string) outbox.Claimed {
			c := f.ClaimOne(topic)
			f.Settle(outbox.Settlement{Receipt: c.Receipt, Outcome: outbox.Fail, Err: errors.New("why")})
			return c
		}
		a1, a2, b := fail("a"), fail("a"), fail("b")
		done := f.ClaimOne("a")
		f.Settle(suite.Settled(outbox.Ack, done)...)
		f.Exec("UPDATE {outbox_state} SET {retry_count} = 9")

		requeue := func(params outbox.RequeueParams) int {
			n, err := f.Outbox.Requeue(f.Context(), params)
			f.NoError(err)
			return n
		}
		f.Zero(requeue(outbox.RequeueParams{IDs: []outbox.MessageID{b.ID, done.ID}, Topic: "a"}), "both filters must hold")
		f.Equal(1, requeue(outbox.RequeueParams{IDs: []outbox.MessageID{a1.ID, done.ID}}))
		r := f.Row(a1.ID)
		f.Equal(int(outbox.Ready), r.Status)
		f.Equal(0, r.Retries)
		f.Equal("why", r.LastError, "LastError stays")
		f.False(r.HasEnd || r.HasProcessedBy)
		f.Equal(1, requeue(outbox.RequeueParams{Topic: "a"}))
		f.Equal(1, requeue(outbox.RequeueParams{All: true}))
		f.Equal(int(outbox.Done), f.Row(done.ID).Status)
		f.ElementsMatch([]outbox.MessageID{a1.ID, a2.ID, b.ID}, suite.MessageIDs(f.Claim("a", "b")))
	})
}

func TestRequeueTakesMoreThanABatch(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		ids := f.EnqueueN("orders", 1100)
		for range 2 {
			f.Settle(suite.Settled(outbox.Fail, f.ClaimWith(outbox.ClaimParams{Topics: suite.Quotas("orders"), Limit: 1000})...)...)
		}
		n, err := f.Outbox.Requeue(f.Context(), outbox.RequeueParams{IDs: ids[:1050]})
		f.NoError(err)
		f.Equal(1050, n)
		f.Equal(int64(50), f.Number("SELECT COUNT(*) FROM {all} WHERE {status} = 3"))
	})
}

func TestPurgeDeletesByAgeAndNeverALiveMessage(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		old, young, failed, held := f.ClaimOne("a"), f.ClaimOne("a"), f.ClaimOne("a"), f.ClaimOne("a")
		ready := f.EnqueueN("a", 1)[0]
		f.Settle(append(suite.Settled(outbox.Ack, old, young), suite.Settled(outbox.Fail, failed)...)...)
		f.Exec("UPDATE {outbox} SET {created_at} = {past}")
		f.ExecStates("UPDATE {outbox_state} SET {processed_at} = {past} WHERE {seq} IN (SELECT {seq} FROM {all} WHERE {message_id} IN ('%s', '%s'))", old.ID, failed.ID)
		purge := func(params outbox.PurgeParams) int {
			n, err := f.Outbox.Purge(f.Context(), params)
			f.NoError(err)
			return n
		}
		f.Zero(purge(outbox.PurgeParams{OlderThan: 2 * time.Hour}))
		f.Equal(1, purge(outbox.PurgeParams{OlderThan: 30 * time.Minute}))
		f.Empty(f.Rows("{message_id} = '%s'", old.ID))
		f.Zero(purge(outbox.PurgeParams{OlderThan: 50 * 24 * time.Hour}), "an age beyond what an int of milliseconds holds")
		f.Equal(1, purge(outbox.PurgeParams{OlderThan: 30 * time.Minute, Failed: true}))
		f.Empty(f.Rows("{message_id} = '%s'", failed.ID))
		f.Eventually(func() bool { return f.Now().After(f.Row(young.ID).Processed) }, 10*time.Second, time.Millisecond)
		f.Equal(1, purge(outbox.PurgeParams{}))
		f.Equal(int(outbox.InProgress), f.Row(held.ID).Status)
		f.Equal(int(outbox.Ready), f.Row(ready).Status)
		_, err := f.Outbox.Purge(f.Context(), outbox.PurgeParams{OlderThan: -1})
		f.RequireField(err, "PurgeParams.OlderThan")
		_, err = f.Outbox.Purge(f.Context(), outbox.PurgeParams{Failed: true, Log: true})
		f.RequireField(err, "PurgeParams.Failed")
	})
}

// Retention never blocks claims: a transaction that has ended rows locked holds up neither purges nor claims.
func TestPurgePassesOverLockedRows(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Needs(suite.SkipLocked)
		a, b := f.ClaimOne("a"), f.ClaimOne("a")
		f.Settle(suite.Settled(outbox.Ack, a, b)...)
		f.Exec("UPDATE {outbox} SET {created_at} = {past}")
		f.ExecStates("UPDATE {outbox_state} SET {processed_at} = {past}")
		tx, err := f.DB.BeginTx(f.Context(), nil)
		f.NoError(err)
		f.ExecOn(tx, "UPDATE {outbox_state} SET {flags} = {flags} WHERE {seq} IN (SELECT {seq} FROM {all} WHERE {message_id} = '%s')", a.ID)
		n, err := f.Outbox.Purge(f.Context(), outbox.PurgeParams{})
		f.NoError(err)
		f.Equal(1, n)
		f.ClaimOne("a")
		f.NoError(tx.Rollback())
	})
}

func TestTopicsListsWhatWaits(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		before := f.Now()
		f.EnqueueN("b", 3)
		f.EnqueueN("a", 2)
		f.EnqueueN("held", 1)
		f.Claim("held")
		f.Enqueue(outbox.Message{Topic: "later", Delay: time.Hour}, outbox.Message{Topic: "b", Delay: time.Hour})
		done := f.ClaimOne("done")
		f.Settle(suite.Settled(outbox.Ack, done)...)

		topics, err := f.Outbox.Topics(f.Context())
		f.NoError(err)
		waiting := map[string]int{}
		for _, topic := range topics {
			waiting[topic.Topic] = topic.Waiting
			f.Between(before, f.Now(), topic.Oldest)
		}
		f.Equal(map[string]int{"a": 2, "b": 3}, waiting)
	})
}

func TestTopicsCountDeadLetters(t *testing.T) {
	forEach(t, func(_ *testing.T, f *fixture) {
		f.EnqueueN("a", 3)
		f.Settle(suite.Settled(outbox.Fail, f.Claim("a")...)...)
		f.EnqueueN("a", 1)
		f.Enqueue(outbox.Message{Topic: "b", StreamKey: "s"}, outbox.Message{Topic: "b", StreamKey: "s"})
		f.Settle(suite.Settled(outbox.Fail, f.Claim("b")...)...)
		counts := func() map[string][3]int {
			topics, err := f.Outbox.Topics(f.Context())
			f.NoError(err)
			found := map[string][3]int{}
			for _, t := range topics {
				found[t.Topic] = [3]int{t.Waiting, t.Failed, t.BlockedStreams}
			}
			f.Len(found, len(topics), "a topic is listed twice")
			return found
		}
		f.Equal(3, counts()["a"][1])
		f.Equal(1, counts()["a"][0])
		f.Positive(counts()["b"][1])
		f.Equal(1, counts()["b"][2])
		_, err := f.Outbox.Requeue(f.Context(), outbox.RequeueParams{Topic: "a"})
		f.NoError(err)
		f.Equal([3]int{4, 0, 0}, counts()["a"])
	})
}

func TestGetReadsWhatTheTableHas(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.ClaimOne("orders")
		ids := append(f.EnqueueN("orders", 1050), c.ID)
		var unknown outbox.MessageID
		records, err := f.Outbox.Get(f.Context(), append(ids, unknown)...)
		f.NoError(err)
		f.Len(records, 1051)
		for i := range records[1:] {
			f.Less(records[i].Seq, records[i+1].Seq)
		}
		first, r := records[0], f.Row(c.ID)
		f.Equal(c.ID, first.ID)
		f.Equal(outbox.InProgress, first.Status)
		f.Equal(c.Receipt.Owner, first.Owner)
		f.SameTime(r.LockedUntil, first.LockedUntil)
		f.SameTime(r.Created, first.CreatedAt)
		f.SameTime(r.NextAttempt, first.NextAttemptAt)
		f.True(first.ProcessedAt.IsZero() && first.DueAt.IsZero())
		none, err := f.Outbox.Get(f.Context())
		f.NoError(err)
		f.Empty(none)
	})
}
