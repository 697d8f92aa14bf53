package conformance

import (
	"context"
	"errors"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/base"
)

func TestOBX043_044_045_ReapGivesBackWhatHasExpired(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.enqueueN("orders", 5)
		expired := f.claim("orders")
		f.expireLeases()
		f.enqueueN("orders", 2)
		held := f.claimWith(outbox.ClaimParams{Topics: quotas("orders"), GiveBack: -1})
		f.Len(held, 2)

		n, err := f.outbox.ReapExpired(f.ctx())
		f.NoError(err)
		f.Equal(5, n)
		for _, c := range expired {
			r := f.row(c.ID)
			f.Equal(int(outbox.Ready), r.status)
			f.False(r.hasOwner || r.hasLease)
			f.Equal(1, r.retries, "a reap counts an attempt")
			f.NotEmpty(r.lastError)
		}
		for _, c := range held {
			f.Equal(int(outbox.InProgress), f.row(c.ID).status)
		}
		f.Equal(messageIDs(expired), messageIDs(f.claimWith(outbox.ClaimParams{Topics: quotas("orders"), GiveBack: -1})))
		n, err = f.outbox.ReapExpired(f.ctx())
		f.NoError(err)
		f.Zero(n)
	})
}

func TestOBX043_ReapTakesAnyNumberInSmallBatches(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.enqueueN("orders", 1100)
		for range 2 {
			f.claimWith(outbox.ClaimParams{Topics: quotas("orders"), Limit: 1000})
		}
		f.Empty(f.rows("{status} <> 1"))
		f.expireLeases()
		n, err := f.outbox.ReapExpired(f.ctx())
		f.NoError(err)
		f.Equal(1100, n)
		f.Empty(f.rows("{status} <> 0"))
	})
}

// What comes back from a worker that died comes back at moments of its own, further apart with each attempt.
func TestWhatHasExpiredComesBackApart(t *testing.T) {
	giveBack := map[string]func(*fixture, *outbox.Outbox) error{
		"reap": func(f *fixture, o *outbox.Outbox) error {
			_, err := o.ReapExpired(f.ctx())
			return err
		},
		"claim": func(f *fixture, o *outbox.Outbox) error {
			_, err := o.Claim(f.ctx(), outbox.ClaimParams{Topics: quotas("another"), GiveBack: 200})
			return err
		},
	}
	forEach(t, func(t *testing.T, f *fixture) {
		o := f.newOutbox(f.db.DB, func(c *outbox.Config) { c.ExpiryBackoff = outbox.ExponentialBackoff(time.Hour, 4*time.Hour) })
		for name, giveBack := range giveBack {
			f.enqueueN(name, 80)
			f.Len(f.claim(name), 80)
			f.exec("UPDATE {outbox_state} SET {retry_count} = CASE WHEN {seq} %% 2 = 0 THEN 0 ELSE 9 END WHERE {seq} IN (SELECT {seq} FROM {all} WHERE {topic} = '%s')", name)
			f.exec("UPDATE {outbox_lease} SET {locked_until} = {past} WHERE {owner_token} IN (SELECT {owner_token} FROM {all} WHERE {topic} = '%s')", name)
			before := f.now()
			f.NoError(giveBack(f, o))
			after := f.now()
			at := map[time.Time]bool{}
			late := 0
			for _, r := range f.rows("{topic} = '%s'", name) {
				f.Equal(int(outbox.Ready), r.status)
				if r.retries == 1 {
					f.between(before, after.Add(time.Hour), r.nextAttempt)
				} else {
					f.between(before, after.Add(4*time.Hour), r.nextAttempt)
				}
				if r.nextAttempt.After(after.Add(time.Hour)) {
					late++
				}
				at[r.nextAttempt] = true
			}
			f.Greater(len(at), 40, "%s: moments", name)
			f.Greater(late, 10, "%s: those that have spent more attempts wait longer", name)
			f.Empty(f.claim(name), "%s: all are claimed again at once", name)
		}
	})
}

func TestOBX046_ReapLeavesAloneWhatHasEnded(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		done, failed := f.claimOne("orders"), f.claimOne("orders")
		f.settle(append(settled(outbox.Ack, done), settled(outbox.Fail, failed)...)...)
		before := f.rows("1 = 1")
		n, err := f.outbox.ReapExpired(f.ctx())
		f.NoError(err)
		f.Zero(n)
		f.Equal(before, f.rows("1 = 1"))
	})
}

func TestRenewExtendsWhatIsHeldAndAnswersWhatIsLost(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		held, lost, expired := f.claimOne("held"), f.claimOne("lost"), f.claimOne("expired")
		f.exec("UPDATE {outbox_lease} SET {locked_until} = {past} WHERE {owner_token} IN (SELECT {owner_token} FROM {all} WHERE {topic} = 'lost')")
		again := f.claim("lost")
		f.Len(again, 1)
		f.exec("UPDATE {outbox_lease} SET {locked_until} = {past} WHERE {owner_token} IN (SELECT {owner_token} FROM {all} WHERE {topic} = 'expired')")
		unknown := outbox.Receipt{Seq: 1 << 40, Owner: base.NewOwnerToken()}

		before := f.now()
		refused, err := f.outbox.Renew(f.ctx(), 2*time.Hour, held.Receipt, lost.Receipt, expired.Receipt, unknown)
		f.NoError(err)
		f.ElementsMatch([]outbox.WorkItemID{lost.Receipt.Seq, unknown.Seq}, refused)
		for _, c := range []outbox.Claimed{held, expired} { // expiry alone refuses nothing: nobody has taken it
			f.between(before.Add(2*time.Hour), f.now().Add(2*time.Hour), f.row(c.ID).lockedUntil)
			f.Equal(c.Receipt.Owner, f.row(c.ID).owner)
		}
		f.between(before.Add(-time.Hour), before.Add(time.Hour), f.row(lost.ID).lockedUntil)
		f.Equal(again[0].Receipt.Owner, f.row(lost.ID).owner)

		for _, lease := range []time.Duration{0, -1, 25 * time.Hour} {
			_, err := f.outbox.Renew(f.ctx(), lease, held.Receipt)
			f.requireField(err, "lease")
		}
		refused, err = f.outbox.Renew(f.ctx(), time.Hour)
		f.NoError(err)
		f.Empty(refused)
	})
}

// A handler that settles in its own transaction has its row locked. That holds up the renewal of no other, and does not
// count as lost.
func TestRenewPassesOverLockedRows(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.needs(skipLocked, updatesSkipLocked)
		locked, other, lost := f.claimOne("a"), f.claimOne("b"), f.claimOne("c")
		f.steal("{topic} = 'c'")
		tx, err := f.db.BeginTx(f.ctx(), nil)
		f.NoError(err)
		defer func() { _ = tx.Rollback() }() // for a failure before the end
		_, err = f.outbox.Settle(f.ctx(), tx, settled(outbox.Ack, locked))
		f.NoError(err)
		ctx, cancel := context.WithTimeout(f.ctx(), patience)
		defer cancel()
		refused, err := f.outbox.Renew(ctx, 2*time.Hour, locked.Receipt, other.Receipt, lost.Receipt)
		f.NoError(err)
		f.Equal([]outbox.WorkItemID{lost.Receipt.Seq}, refused)
		f.Greater(f.row(other.ID).lockedUntil.Sub(f.now()), time.Hour)
		f.NoError(tx.Commit())
		refused, err = f.outbox.Renew(f.ctx(), 2*time.Hour, locked.Receipt)
		f.NoError(err)
		f.Len(refused, 1, "now it has ended")
	})
}

func TestRequeueMakesFailedMessagesReadyWithAFreshBudget(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		fail := func(topic string) outbox.Claimed {
			c := f.claimOne(topic)
			f.settle(outbox.Settlement{Receipt: c.Receipt, Outcome: outbox.Fail, Err: errors.New("why")})
			return c
		}
		a1, a2, b := fail("a"), fail("a"), fail("b")
		done := f.claimOne("a")
		f.settle(settled(outbox.Ack, done)...)
		f.exec("UPDATE {outbox_state} SET {retry_count} = 9")

		requeue := func(params outbox.RequeueParams) int {
			n, err := f.outbox.Requeue(f.ctx(), params)
			f.NoError(err)
			return n
		}
		f.Zero(requeue(outbox.RequeueParams{IDs: []outbox.MessageID{b.ID, done.ID}, Topic: "a"}), "both filters must hold")
		f.Equal(1, requeue(outbox.RequeueParams{IDs: []outbox.MessageID{a1.ID, done.ID}}))
		r := f.row(a1.ID)
		f.Equal(int(outbox.Ready), r.status)
		f.Equal(0, r.retries)
		f.Equal("why", r.lastError, "LastError stays")
		f.False(r.hasEnd || r.hasProcessedBy)
		f.Equal(1, requeue(outbox.RequeueParams{Topic: "a"}))
		f.Equal(1, requeue(outbox.RequeueParams{All: true}))
		f.Equal(int(outbox.Done), f.row(done.ID).status)
		f.ElementsMatch([]outbox.MessageID{a1.ID, a2.ID, b.ID}, messageIDs(f.claim("a", "b")))
	})
}

func TestRequeueTakesMoreThanABatch(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		ids := f.enqueueN("orders", 1100)
		for range 2 {
			f.settle(settled(outbox.Fail, f.claimWith(outbox.ClaimParams{Topics: quotas("orders"), Limit: 1000})...)...)
		}
		n, err := f.outbox.Requeue(f.ctx(), outbox.RequeueParams{IDs: ids[:1050]})
		f.NoError(err)
		f.Equal(1050, n)
		f.Equal(int64(50), f.number("SELECT COUNT(*) FROM {all} WHERE {status} = 3"))
	})
}

func TestPurgeDeletesByAgeAndNeverALiveMessage(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		old, young, failed, held := f.claimOne("a"), f.claimOne("a"), f.claimOne("a"), f.claimOne("a")
		ready := f.enqueueN("a", 1)[0]
		f.settle(append(settled(outbox.Ack, old, young), settled(outbox.Fail, failed)...)...)
		f.exec("UPDATE {outbox} SET {created_at} = {past}")
		f.exec("UPDATE {outbox_state} SET {processed_at} = {past} WHERE {seq} IN (SELECT {seq} FROM {all} WHERE {message_id} IN ('%s', '%s'))", old.ID, failed.ID)
		purge := func(params outbox.PurgeParams) int {
			n, err := f.outbox.Purge(f.ctx(), params)
			f.NoError(err)
			return n
		}
		f.Zero(purge(outbox.PurgeParams{OlderThan: 2 * time.Hour}))
		f.Equal(1, purge(outbox.PurgeParams{OlderThan: 30 * time.Minute}))
		f.Empty(f.rows("{message_id} = '%s'", old.ID))
		f.Zero(purge(outbox.PurgeParams{OlderThan: 50 * 24 * time.Hour}), "an age beyond what an int of milliseconds holds")
		f.Equal(1, purge(outbox.PurgeParams{OlderThan: 30 * time.Minute, Failed: true}))
		f.Empty(f.rows("{message_id} = '%s'", failed.ID))
		f.Eventually(func() bool { return f.now().After(f.row(young.ID).processed) }, 10*time.Second, time.Millisecond)
		f.Equal(1, purge(outbox.PurgeParams{}))
		f.Equal(int(outbox.InProgress), f.row(held.ID).status)
		f.Equal(int(outbox.Ready), f.row(ready).status)
		_, err := f.outbox.Purge(f.ctx(), outbox.PurgeParams{OlderThan: -1})
		f.requireField(err, "PurgeParams.OlderThan")
		_, err = f.outbox.Purge(f.ctx(), outbox.PurgeParams{Failed: true, Log: true})
		f.requireField(err, "PurgeParams.Failed")
	})
}

// Retention never blocks claims: a transaction that has ended rows locked holds up neither purges nor claims.
func TestPurgePassesOverLockedRows(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.needs(skipLocked)
		a, b := f.claimOne("a"), f.claimOne("a")
		f.settle(settled(outbox.Ack, a, b)...)
		f.exec("UPDATE {outbox} SET {created_at} = {past}")
		f.exec("UPDATE {outbox_state} SET {processed_at} = {past}")
		tx, err := f.db.BeginTx(f.ctx(), nil)
		f.NoError(err)
		f.execOn(tx, "UPDATE {outbox_state} SET {flags} = {flags} WHERE {seq} IN (SELECT {seq} FROM {all} WHERE {message_id} = '%s')", a.ID)
		n, err := f.outbox.Purge(f.ctx(), outbox.PurgeParams{})
		f.NoError(err)
		f.Equal(1, n)
		f.claimOne("a")
		f.NoError(tx.Rollback())
	})
}

func TestTopicsListsWhatWaits(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		before := f.now()
		f.enqueueN("b", 3)
		f.enqueueN("a", 2)
		f.enqueueN("held", 1)
		f.claim("held")
		f.enqueue(outbox.Message{Topic: "later", Delay: time.Hour}, outbox.Message{Topic: "b", Delay: time.Hour})
		done := f.claimOne("done")
		f.settle(settled(outbox.Ack, done)...)

		topics, err := f.outbox.Topics(f.ctx())
		f.NoError(err)
		waiting := map[string]int{}
		for _, topic := range topics {
			waiting[topic.Topic] = topic.Waiting
			f.between(before, f.now(), topic.Oldest)
		}
		f.Equal(map[string]int{"a": 2, "b": 3}, waiting)
	})
}

func TestTopicsCountDeadLetters(t *testing.T) {
	forEach(t, func(_ *testing.T, f *fixture) {
		f.enqueueN("a", 3)
		f.settle(settled(outbox.Fail, f.claim("a")...)...)
		f.enqueueN("a", 1)
		f.enqueue(outbox.Message{Topic: "b", StreamKey: "s"}, outbox.Message{Topic: "b", StreamKey: "s"})
		f.settle(settled(outbox.Fail, f.claim("b")...)...)
		counts := func() map[string][3]int {
			topics, err := f.outbox.Topics(f.ctx())
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
		_, err := f.outbox.Requeue(f.ctx(), outbox.RequeueParams{Topic: "a"})
		f.NoError(err)
		f.Equal([3]int{4, 0, 0}, counts()["a"])
	})
}

func TestGetReadsWhatTheTableHas(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.claimOne("orders")
		ids := append(f.enqueueN("orders", 1050), c.ID)
		var unknown outbox.MessageID
		records, err := f.outbox.Get(f.ctx(), append(ids, unknown)...)
		f.NoError(err)
		f.Len(records, 1051)
		for i := range records[1:] {
			f.Less(records[i].Seq, records[i+1].Seq)
		}
		first, r := records[0], f.row(c.ID)
		f.Equal(c.ID, first.ID)
		f.Equal(outbox.InProgress, first.Status)
		f.Equal(c.Receipt.Owner, first.Owner)
		f.sameTime(r.lockedUntil, first.LockedUntil)
		f.sameTime(r.created, first.CreatedAt)
		f.sameTime(r.nextAttempt, first.NextAttemptAt)
		f.True(first.ProcessedAt.IsZero() && first.DueAt.IsZero())
		none, err := f.outbox.Get(f.ctx())
		f.NoError(err)
		f.Empty(none)
	})
}
