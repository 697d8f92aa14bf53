package queue_test

import (
	"fmt"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
)

func TestOBX011_ClaimTakesABatchAtomically(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		ids := f.EnqueueN("orders", 30)
		first := f.ClaimWith(outbox.ClaimParams{Topics: suite.Quotas("orders"), Limit: 10})
		f.Equal(ids[:10], suite.MessageIDs(first), "the oldest come first, in order")
		second := f.ClaimWith(outbox.ClaimParams{Topics: suite.Quotas("orders"), Limit: 100})
		f.Equal(ids[10:], suite.MessageIDs(second))
		for _, c := range append(first, second...) {
			f.Equal(int(outbox.InProgress), f.Row(c.ID).Status)
		}
	})
}

func TestOBX011_ClaimPassesOverLockedRows(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Needs(suite.SkipLocked)
		ids := f.EnqueueN("orders", 3)
		tx, err := f.DB.BeginTx(f.Context(), nil)
		f.NoError(err)
		f.ExecOn(tx, "UPDATE {outbox_state} SET {flags} = {flags} WHERE {seq} IN (SELECT {seq} FROM {all} WHERE {message_id} = '%s')", ids[1])

		claimed := f.Claim("orders") // and does not wait, or the test would never end
		f.Equal([]outbox.MessageID{ids[0], ids[2]}, suite.MessageIDs(claimed))
		f.NoError(tx.Rollback())
		f.Equal(ids[1:2], suite.MessageIDs(f.Claim("orders")))
	})
}

func TestOBX012_ClaimTakesOnlyWhatIsDue(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Enqueue(
			outbox.Message{Topic: "orders", UUID: "future", Delay: time.Hour},
			outbox.Message{Topic: "orders", UUID: "now"},
			outbox.Message{Topic: "orders", UUID: "past", DueAt: f.Now().Add(-time.Hour)},
			outbox.Message{Topic: "orders", UUID: "soon", Delay: 20 * time.Second},
		)
		var got []string
		for _, c := range f.Claim("orders") {
			got = append(got, c.UUID)
		}
		f.ElementsMatch([]string{"now", "past"}, got)

		// The backoff of a retry is the same kind of due time.
		f.Clear()
		c := f.ClaimOne("orders")
		f.Settle(outbox.Settlement{Receipt: c.Receipt, Outcome: outbox.Retry, Delay: time.Hour})
		f.Empty(f.Claim("orders"))
	})
}

func TestOBX013_ClaimTakesNothingThatAnotherHolds(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.ClaimOne("orders")
		f.Empty(f.Claim("orders"))

		// A lease that has expired is given back, which counts an attempt, and claimed by the same call.
		f.ExpireLeases()
		again := f.Claim("orders")
		f.Equal([]outbox.MessageID{c.ID}, suite.MessageIDs(again))
		f.Equal(1, again[0].RetryCount)
		f.NotEqual(c.Receipt, again[0].Receipt)
		f.NotEmpty(f.Row(c.ID).LastError, "the row says why the attempt was spent")

		// Unless the call is told not to.
		f.ExpireLeases()
		f.Empty(f.ClaimWith(outbox.ClaimParams{Topics: suite.Quotas("orders"), GiveBack: -1}))
	})
}

func TestOBX013_ClaimGivesBackABoundedNumberOfExpiredLeases(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.EnqueueN("orders", 30)
		for range 3 {
			f.Len(f.ClaimWith(outbox.ClaimParams{Topics: suite.Quotas("orders"), Limit: 10}), 10)
		}
		f.ExpireLeases()
		f.Len(f.ClaimWith(outbox.ClaimParams{Topics: suite.Quotas("orders"), GiveBack: 10}), 10)
		f.Equal(int64(20), f.Number("SELECT COUNT(*) FROM {all} WHERE {status} = 1 AND {locked_until} < {now}"))
		// Messages of any topic are given back: a topic that nobody reads now must not hold them.
		f.Empty(f.ClaimWith(outbox.ClaimParams{Topics: suite.Quotas("another"), GiveBack: 20}))
		f.Len(f.Claim("orders"), 20)
	})
}

func TestOBX014_ClaimSetsTheLeaseByTheDatabasesClock(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		for _, lease := range []time.Duration{time.Hour, 1500 * time.Millisecond, 24 * time.Hour} {
			f.EnqueueN("orders", 1)
			before := f.Now()
			c := f.ClaimWith(outbox.ClaimParams{Topics: suite.Quotas("orders"), Lease: lease, GiveBack: -1})
			f.Len(c, 1)
			f.Between(before.Add(lease), f.Now().Add(lease), f.Row(c[0].ID).LockedUntil)
		}
		f.EnqueueN("orders", 1)
		before := f.Now()
		c := f.ClaimWith(outbox.ClaimParams{Topics: suite.Quotas("orders"), GiveBack: -1})
		f.Between(before.Add(30*time.Second), f.Now().Add(30*time.Second), f.Row(c[0].ID).LockedUntil)
	})
}

func TestOBX015_ClaimWritesTheOwnerToken(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.EnqueueN("orders", 2)
		owner := base.NewOwnerToken()
		c := f.ClaimWith(outbox.ClaimParams{Topics: suite.Quotas("orders"), Owner: owner, Limit: 1})
		f.Equal(owner, c[0].Receipt.Owner)
		f.Equal(owner, f.Row(c[0].ID).Owner)

		// Without one, each claim makes its own.
		c = f.ClaimWith(outbox.ClaimParams{Topics: suite.Quotas("orders"), Limit: 1})
		f.NotEqual(owner, c[0].Receipt.Owner)
		f.Equal(c[0].Receipt.Owner, f.Row(c[0].ID).Owner)
	})
}

func TestOBX016_017_ClaimAnswersWithAllThatItTook(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Empty(f.Claim("orders"), "nothing is ready in an empty table, and that is no error")
		ids := f.EnqueueN("orders", 250)
		claimed := f.ClaimWith(outbox.ClaimParams{Topics: suite.Quotas("orders"), Limit: 1000})
		f.Equal(ids, suite.MessageIDs(claimed))
		held := f.Rows("{status} = 1")
		f.Len(held, 250)
		for i, r := range held {
			f.Equal(r.Seq, claimed[i].Receipt.Seq)
			f.Equal(r.Owner, claimed[i].Receipt.Owner)
			f.Equal(fmt.Sprintf("payload %d", i), string(claimed[i].Payload))
			f.Equal("orders", claimed[i].Topic)
		}
		f.Empty(f.Claim("orders"), "nor is anything when all is taken")
		f.Empty(f.Claim("no such topic"))
	})
}

func TestOBX018_019_ClaimNeverTakesWhatHasEnded(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		done, failed := f.ClaimOne("orders"), f.ClaimOne("orders")
		f.Settle(suite.Settled(outbox.Ack, done)...)
		f.Settle(suite.Settled(outbox.Fail, failed)...)
		f.Exec("UPDATE {outbox_state} SET {next_attempt_at} = {past}")
		f.Empty(f.Claim("orders"))
		f.Equal(int(outbox.Done), f.Row(done.ID).Status)
		f.Equal(int(outbox.Failed), f.Row(failed.ID).Status)
	})
}

func TestOBX020_ClaimNeverTakesMoreThanAskedFor(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.EnqueueN("a", 20)
		f.EnqueueN("b", 20)
		f.Len(f.ClaimWith(outbox.ClaimParams{Topics: suite.Quotas("a", "b"), Limit: 1}), 1)
		f.Len(f.ClaimWith(outbox.ClaimParams{Topics: suite.Quotas("a", "b"), Limit: 25}), 25, "over all topics")

		// By default 100.
		f.EnqueueN("c", 150)
		f.Len(f.ClaimWith(outbox.ClaimParams{Topics: suite.Quotas("c")}), 100)

		for _, limit := range []int{-1, 1001} {
			_, err := f.Outbox.Claim(f.Context(), outbox.ClaimParams{Topics: suite.Quotas("a"), Limit: limit})
			f.RequireField(err, "ClaimParams.Limit")
		}
	})
}

func TestOBX020_ClaimKeepsToTheQuotaAndOrderOfTopics(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		for _, topic := range []string{"a", "b", "c", "d"} {
			f.EnqueueN(topic, 20)
		}
		taken := func(limit int, topics ...outbox.TopicQuota) map[string]int {
			n := map[string]int{}
			for _, c := range f.ClaimWith(outbox.ClaimParams{Topics: topics, Limit: limit}) {
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
				{}, {Topics: []outbox.TopicQuota{{Topic: "a", Quota: -1}}}, {Topics: suite.Quotas("a ")}, {Topics: suite.Quotas("a", "b", "a")},
			},
			"ClaimParams.GiveBack": {{Topics: suite.Quotas("a"), GiveBack: 1001}},
			"ClaimParams.Lease": {
				{Topics: suite.Quotas("a"), Lease: -time.Second}, {Topics: suite.Quotas("a"), Lease: time.Microsecond}, {Topics: suite.Quotas("a"), Lease: 25 * time.Hour},
			},
		} {
			for _, p := range params {
				_, err := f.Outbox.Claim(f.Context(), p)
				f.RequireField(err, field)
			}
		}
	})
}
