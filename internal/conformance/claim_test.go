package conformance

import (
	"fmt"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/base"
)

func TestOBX011_ClaimTakesABatchAtomically(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		ids := f.enqueueN("orders", 30)
		first := f.claimWith(outbox.ClaimParams{Topics: quotas("orders"), Limit: 10})
		f.Equal(ids[:10], messageIDs(first), "the oldest come first, in order")
		second := f.claimWith(outbox.ClaimParams{Topics: quotas("orders"), Limit: 100})
		f.Equal(ids[10:], messageIDs(second))
		for _, c := range append(first, second...) {
			f.Equal(int(outbox.InProgress), f.row(c.ID).status)
		}
	})
}

func TestOBX011_ClaimPassesOverLockedRows(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.needs(skipLocked)
		ids := f.enqueueN("orders", 3)
		tx, err := f.db.BeginTx(f.ctx(), nil)
		f.NoError(err)
		f.execOn(tx, "UPDATE {outbox_state} SET {flags} = {flags} WHERE {seq} IN (SELECT {seq} FROM {all} WHERE {message_id} = '%s')", ids[1])

		claimed := f.claim("orders") // and does not wait, or the test would never end
		f.Equal([]outbox.MessageID{ids[0], ids[2]}, messageIDs(claimed))
		f.NoError(tx.Rollback())
		f.Equal(ids[1:2], messageIDs(f.claim("orders")))
	})
}

func TestOBX012_ClaimTakesOnlyWhatIsDue(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.enqueue(
			outbox.Message{Topic: "orders", UUID: "future", Delay: time.Hour},
			outbox.Message{Topic: "orders", UUID: "now"},
			outbox.Message{Topic: "orders", UUID: "past", DueAt: f.now().Add(-time.Hour)},
			outbox.Message{Topic: "orders", UUID: "soon", Delay: 20 * time.Second},
		)
		var got []string
		for _, c := range f.claim("orders") {
			got = append(got, c.UUID)
		}
		f.ElementsMatch([]string{"now", "past"}, got)

		// The backoff of a retry is the same kind of due time.
		f.clear()
		c := f.claimOne("orders")
		f.settle(outbox.Settlement{Receipt: c.Receipt, Outcome: outbox.Retry, Delay: time.Hour})
		f.Empty(f.claim("orders"))
	})
}

func TestOBX013_ClaimTakesNothingThatAnotherHolds(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.claimOne("orders")
		f.Empty(f.claim("orders"))

		// A lease that has expired is given back, which counts an attempt, and claimed by the same call.
		f.expireLeases()
		again := f.claim("orders")
		f.Equal([]outbox.MessageID{c.ID}, messageIDs(again))
		f.Equal(1, again[0].RetryCount)
		f.NotEqual(c.Receipt, again[0].Receipt)
		f.NotEmpty(f.row(c.ID).lastError, "the row says why the attempt was spent")

		// Unless the call is told not to.
		f.expireLeases()
		f.Empty(f.claimWith(outbox.ClaimParams{Topics: quotas("orders"), GiveBack: -1}))
	})
}

func TestOBX013_ClaimGivesBackABoundedNumberOfExpiredLeases(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.enqueueN("orders", 30)
		for range 3 {
			f.Len(f.claimWith(outbox.ClaimParams{Topics: quotas("orders"), Limit: 10}), 10)
		}
		f.expireLeases()
		f.Len(f.claimWith(outbox.ClaimParams{Topics: quotas("orders"), GiveBack: 10}), 10)
		f.Equal(int64(20), f.number("SELECT COUNT(*) FROM {all} WHERE {status} = 1 AND {locked_until} < {now}"))
		// Messages of any topic are given back: a topic that nobody reads now must not hold them.
		f.Empty(f.claimWith(outbox.ClaimParams{Topics: quotas("another"), GiveBack: 20}))
		f.Len(f.claim("orders"), 20)
	})
}

func TestOBX014_ClaimSetsTheLeaseByTheDatabasesClock(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		for _, lease := range []time.Duration{time.Hour, 1500 * time.Millisecond, 24 * time.Hour} {
			f.enqueueN("orders", 1)
			before := f.now()
			c := f.claimWith(outbox.ClaimParams{Topics: quotas("orders"), Lease: lease, GiveBack: -1})
			f.Len(c, 1)
			f.between(before.Add(lease), f.now().Add(lease), f.row(c[0].ID).lockedUntil)
		}
		f.enqueueN("orders", 1)
		before := f.now()
		c := f.claimWith(outbox.ClaimParams{Topics: quotas("orders"), GiveBack: -1})
		f.between(before.Add(30*time.Second), f.now().Add(30*time.Second), f.row(c[0].ID).lockedUntil)
	})
}

func TestOBX015_ClaimWritesTheOwnerToken(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.enqueueN("orders", 2)
		owner := base.NewOwnerToken()
		c := f.claimWith(outbox.ClaimParams{Topics: quotas("orders"), Owner: owner, Limit: 1})
		f.Equal(owner, c[0].Receipt.Owner)
		f.Equal(owner, f.row(c[0].ID).owner)

		// Without one, each claim makes its own.
		c = f.claimWith(outbox.ClaimParams{Topics: quotas("orders"), Limit: 1})
		f.NotEqual(owner, c[0].Receipt.Owner)
		f.Equal(c[0].Receipt.Owner, f.row(c[0].ID).owner)
	})
}

func TestOBX016_017_ClaimAnswersWithAllThatItTook(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Empty(f.claim("orders"), "nothing is ready in an empty table, and that is no error")
		ids := f.enqueueN("orders", 250)
		claimed := f.claimWith(outbox.ClaimParams{Topics: quotas("orders"), Limit: 1000})
		f.Equal(ids, messageIDs(claimed))
		held := f.rows("{status} = 1")
		f.Len(held, 250)
		for i, r := range held {
			f.Equal(r.seq, claimed[i].Receipt.Seq)
			f.Equal(r.owner, claimed[i].Receipt.Owner)
			f.Equal(fmt.Sprintf("payload %d", i), string(claimed[i].Payload))
			f.Equal("orders", claimed[i].Topic)
		}
		f.Empty(f.claim("orders"), "nor is anything when all is taken")
		f.Empty(f.claim("no such topic"))
	})
}

func TestOBX018_019_ClaimNeverTakesWhatHasEnded(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		done, failed := f.claimOne("orders"), f.claimOne("orders")
		f.settle(settled(outbox.Ack, done)...)
		f.settle(settled(outbox.Fail, failed)...)
		f.exec("UPDATE {outbox_state} SET {next_attempt_at} = {past}")
		f.Empty(f.claim("orders"))
		f.Equal(int(outbox.Done), f.row(done.ID).status)
		f.Equal(int(outbox.Failed), f.row(failed.ID).status)
	})
}

func TestOBX020_ClaimNeverTakesMoreThanAskedFor(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.enqueueN("a", 20)
		f.enqueueN("b", 20)
		f.Len(f.claimWith(outbox.ClaimParams{Topics: quotas("a", "b"), Limit: 1}), 1)
		f.Len(f.claimWith(outbox.ClaimParams{Topics: quotas("a", "b"), Limit: 25}), 25, "over all topics")

		// By default 100.
		f.enqueueN("c", 150)
		f.Len(f.claimWith(outbox.ClaimParams{Topics: quotas("c")}), 100)

		for _, limit := range []int{-1, 1001} {
			_, err := f.outbox.Claim(f.ctx(), outbox.ClaimParams{Topics: quotas("a"), Limit: limit})
			f.requireField(err, "ClaimParams.Limit")
		}
	})
}

func TestOBX020_ClaimKeepsToTheQuotaAndOrderOfTopics(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		for _, topic := range []string{"a", "b", "c", "d"} {
			f.enqueueN(topic, 20)
		}
		taken := func(limit int, topics ...outbox.TopicQuota) map[string]int {
			n := map[string]int{}
			for _, c := range f.claimWith(outbox.ClaimParams{Topics: topics, Limit: limit}) {
				n[c.Topic]++
			}
			return n
		}
		f.Equal(map[string]int{"c": 4, "a": 3, "b": 1}, taken(8,
			outbox.TopicQuota{Topic: "c", Quota: 4}, outbox.TopicQuota{Topic: "a", Quota: 3}, outbox.TopicQuota{Topic: "b", Quota: 5}))
		f.Equal(map[string]int{"b": 8}, taken(8,
			outbox.TopicQuota{Topic: "b"}, outbox.TopicQuota{Topic: "a"}), "the first is not held back without a quota")
		f.Equal(map[string]int{"b": 11, "a": 17}, taken(1000,
			outbox.TopicQuota{Topic: "empty"}, outbox.TopicQuota{Topic: "b", Quota: 999}, outbox.TopicQuota{Topic: "a"}))
		f.Equal(map[string]int{"d": 20}, taken(50,
			outbox.TopicQuota{Topic: "a"}, outbox.TopicQuota{Topic: "b"}, outbox.TopicQuota{Topic: "d"}))
	})
}

func TestClaimRefusesWhatMakesNoSense(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		for field, params := range map[string][]outbox.ClaimParams{
			"ClaimParams.Topics": {
				{}, {Topics: []outbox.TopicQuota{{Topic: "a", Quota: -1}}}, {Topics: quotas("a ")},
			},
			"ClaimParams.GiveBack": {{Topics: quotas("a"), GiveBack: 1001}},
			"ClaimParams.Lease": {
				{Topics: quotas("a"), Lease: -time.Second}, {Topics: quotas("a"), Lease: time.Microsecond}, {Topics: quotas("a"), Lease: 25 * time.Hour},
			},
		} {
			for _, p := range params {
				_, err := f.outbox.Claim(f.ctx(), p)
				f.requireField(err, field)
			}
		}
	})
}
