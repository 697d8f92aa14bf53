package queue_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/seam"
)

func TestOBX021_022_023_AckMarksAsProcessed(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		worker := f.NewOutbox(f.DB.DB, func(c *outbox.Config) { c.WorkerName = "worker 7" })
		one, two, other := f.ClaimOne("orders"), f.ClaimOne("orders"), f.ClaimOne("orders")
		before := f.Now()
		refused, err := worker.Settle(f.Context(), f.DB.DB, suite.Settled(outbox.Ack, one))
		f.NoError(err)
		f.Empty(refused)
		f.NoError(worker.Ack(f.Context(), two.Receipt.Owner, two.Receipt.Seq))
		after := f.Now()

		for _, c := range []outbox.Claimed{one, two} {
			r := f.Row(c.ID)
			f.Equal(int(outbox.Done), r.Status)
			f.Between(before, after, r.Processed)
			f.Equal("worker 7", r.ProcessedBy)
			f.False(r.HasOwner || r.HasLease)
			f.Equal(0, r.Retries)
		}
		f.Equal(int(outbox.InProgress), f.Row(other.ID).Status)
		records, err := f.Outbox.Get(f.Context(), one.ID)
		f.NoError(err)
		f.True(records[0].Status == outbox.Done)
		f.Equal("worker 7", records[0].ProcessedBy)

		// Without a name there is one that finds the process.
		f.NoError(f.Outbox.Ack(f.Context(), other.Receipt.Owner, other.Receipt.Seq))
		f.NotEmpty(f.Row(other.ID).ProcessedBy)
	})
}

// A foreign token, an unknown id and an id that is not held are ignored, and the rest of the call is done.
func TestOBX024_025_AckChangesOnlyWhatIsHeldWithItsToken(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) { f.ignoresTheRest(outbox.Ack, outbox.Done) })
}

func TestOBX032_033_AbandonChangesOnlyWhatIsHeldWithItsToken(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) { f.ignoresTheRest(outbox.Retry, outbox.Ready) })
}

func TestOBX038_039_FailChangesOnlyWhatIsHeldWithItsToken(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) { f.ignoresTheRest(outbox.Fail, outbox.Failed) })
}

func TestReleaseChangesOnlyWhatIsHeldWithItsToken(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) { f.ignoresTheRest(outbox.Release, outbox.Ready) })
}

func (f *fixture) ignoresTheRest(outcome outbox.Outcome, status outbox.Status) {
	f.T.Helper()
	mine, theirs, ended := f.ClaimOne("mine"), f.ClaimOne("theirs"), f.ClaimOne("ended")
	f.Settle(suite.Settled(outbox.Ack, ended)...)
	ready := f.EnqueueN("ready", 1)[0]
	unknown := outbox.WorkItemID(f.Number("SELECT MAX({seq}) FROM {all}") + 1000)
	others := map[outbox.MessageID]suite.Row{theirs.ID: f.Row(theirs.ID), ended.ID: f.Row(ended.ID), ready: f.Row(ready)}

	owner := mine.Receipt.Owner
	ids := []outbox.WorkItemID{theirs.Receipt.Seq, unknown, mine.Receipt.Seq, ended.Receipt.Seq, f.Row(ready).Seq}
	var settlements []outbox.Settlement
	for _, id := range ids {
		settlements = append(settlements, outbox.Settlement{Receipt: outbox.Receipt{Seq: id, Owner: owner}, Outcome: outcome})
	}
	refused := f.Settle(settlements...)
	f.ElementsMatch([]outbox.WorkItemID{theirs.Receipt.Seq, unknown, ended.Receipt.Seq, f.Row(ready).Seq}, refused)
	f.Equal(int(status), f.Row(mine.ID).Status)
	for id, before := range others {
		after := f.Row(id)
		before.IsDue, after.IsDue = false, false
		f.Equal(before, after)
	}

	// The calls of the specification ignore them without a word.
	for _, call := range []func() error{
		func() error { return f.Outbox.Ack(f.Context(), owner, ids...) },
		func() error { return f.Outbox.Abandon(f.Context(), owner, suite.ErrBoom, ids...) },
		func() error { return f.Outbox.Fail(f.Context(), owner, suite.ErrBoom, ids...) },
		func() error { return f.Outbox.Ack(f.Context(), owner) },
	} {
		f.NoError(call())
	}
	f.Equal(int(outbox.InProgress), f.Row(theirs.ID).Status)

	// The lease of the other is intact.
	f.Empty(f.Settle(suite.Settled(outbox.Ack, theirs)...))
}

func TestOBX026_AnAckedMessageIsNeverClaimedAgain(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.ClaimOne("orders")
		f.Settle(suite.Settled(outbox.Ack, c)...)
		f.comesBackNever(c)
	})
}

func TestOBX042_AFailedMessageIsNeverClaimedAgain(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.ClaimOne("orders")
		f.Settle(suite.Settled(outbox.Fail, c)...)
		f.comesBackNever(c)
		// Unless somebody requeues it.
		n, err := f.Outbox.Requeue(f.Context(), outbox.RequeueParams{IDs: []outbox.MessageID{c.ID}})
		f.NoError(err)
		f.Equal(1, n)
		f.Len(f.Claim("orders"), 1)
	})
}

// comesBackNever tries all that gives messages back.
func (f *fixture) comesBackNever(c outbox.Claimed) {
	f.T.Helper()
	f.Exec("UPDATE {outbox_state} SET {next_attempt_at} = {past}")
	f.Empty(f.Claim(c.Topic))
	n, err := f.Outbox.ReapExpired(f.Context())
	f.NoError(err)
	f.Zero(n)
	f.Empty(f.Claim(c.Topic))
	refused, err := f.Outbox.Renew(f.Context(), time.Minute, c.Receipt)
	f.NoError(err)
	f.Equal([]outbox.WorkItemID{c.Receipt.Seq}, refused)
	f.Equal([]outbox.WorkItemID{c.Receipt.Seq}, f.Settle(suite.Settled(outbox.Release, c)...))
	f.Empty(f.Claim(c.Topic))
}

func TestOBX029_030_034_AbandonGivesBackAndCountsAnAttempt(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.ClaimOne("orders")
		f.Exec("UPDATE {outbox_state} SET {retry_count} = 6") // the backoff is a minute, which the test does not last
		f.NoError(f.Outbox.Abandon(f.Context(), c.Receipt.Owner, suite.ErrBoom, c.Receipt.Seq))
		r := f.Row(c.ID)
		f.Equal(int(outbox.Ready), r.Status)
		f.False(r.HasOwner || r.HasLease)
		f.Equal(7, r.Retries)
		f.Empty(f.Claim("orders"), "not before the backoff has passed")
		f.MakeDue()
		again := f.Claim("orders")
		f.Len(again, 1)
		f.Equal(7, again[0].RetryCount)
	})
}

func TestOBX030_ReleaseSpendsNoAttempt(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.ClaimOne("orders")
		f.Settle(suite.Settled(outbox.Release, c)...)
		r := f.Row(c.ID)
		f.Equal(int(outbox.Ready), r.Status)
		f.Equal(0, r.Retries)
		f.False(r.HasOwner || r.HasLease || r.HasError)
		again := f.Claim("orders")
		f.Len(again, 1, "it is due at once")
		f.Settle(outbox.Settlement{Receipt: again[0].Receipt, Outcome: outbox.Release, Delay: time.Hour, Err: errors.New("broker down")})
		f.Empty(f.Claim("orders"), "unless a delay is given")
		f.Equal("broker down", f.Row(c.ID).LastError)
	})
}

func TestOBX031_055_056_TheBackoffDoublesFromOneSecondToOneMinute(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.EnqueueN("orders", 1)
		for attempt, want := range []int{1, 2, 4, 8, 16, 32, 60, 60, 60} {
			c := f.Claim("orders")
			f.Len(c, 1, "attempt %d", attempt)
			f.Equal(attempt, c[0].RetryCount)
			before := f.Now()
			f.NoError(f.Outbox.Abandon(f.Context(), c[0].Receipt.Owner, suite.ErrBoom, c[0].Receipt.Seq))
			delay := time.Duration(want) * time.Second
			f.Between(before.Add(delay), f.Now().Add(delay), f.Row(c[0].ID).NextAttempt)
			f.Equal(delay, outbox.ExponentialBackoff(time.Second, time.Minute)(attempt), "the same as the policy of the subscriber")
			f.MakeDue()
		}
		for _, retries := range []int{29, 30, 31, 62, 63, 64, 1000, 1 << 30} { // far beyond what a shift can hold
			f.Exec("UPDATE {outbox_state} SET {retry_count} = %d", retries)
			c := f.Claim("orders")
			f.Len(c, 1)
			before := f.Now()
			f.Settle(suite.Settled(outbox.Retry, c...)...)
			f.Between(before.Add(time.Minute), f.Now().Add(time.Minute), f.Row(c[0].ID).NextAttempt)
			f.Equal(time.Minute, outbox.ExponentialBackoff(time.Second, time.Minute)(retries))
			f.MakeDue()
		}
	})
}

func TestOBX057_TheDelayCanBeChosen(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.ClaimOne("orders")
		before := f.Now()
		f.Settle(outbox.Settlement{Receipt: c.Receipt, Outcome: outbox.Retry, Delay: 36 * time.Hour})
		f.Between(before.Add(36*time.Hour), f.Now().Add(36*time.Hour), f.Row(c.ID).NextAttempt)
		f.MakeDue()
		again := f.Claim("orders")
		f.Settle(outbox.Settlement{Receipt: again[0].Receipt, Outcome: outbox.Retry, Delay: -1})
		f.Len(f.Claim("orders"), 1, "also none at all")

		_, err := f.Outbox.Settle(f.Context(), f.DB.DB, []outbox.Settlement{{Outcome: outbox.Retry, Delay: -2}})
		f.RequireField(err, "Settlement.Delay")
		_, err = f.Outbox.Settle(f.Context(), f.DB.DB, []outbox.Settlement{{Outcome: outbox.Ack, Err: outbox.ErrClosed}})
		f.RequireField(err, "Settlement.Err")

		policy := outbox.ExponentialBackoff(10*time.Millisecond, 35*time.Millisecond)
		for retry, want := range []int{10, 20, 35, 35} {
			f.Equal(time.Duration(want)*time.Millisecond, policy(retry))
		}
	})
}

func TestOBX035_037_TheLastErrorIsKept(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		for outcome, call := range map[string]func(outbox.OwnerToken, error, outbox.WorkItemID) error{
			"abandon": func(o outbox.OwnerToken, err error, id outbox.WorkItemID) error {
				return f.Outbox.Abandon(f.Context(), o, err, id)
			},
			"fail": func(o outbox.OwnerToken, err error, id outbox.WorkItemID) error {
				return f.Outbox.Fail(f.Context(), o, err, id)
			},
		} {
			c := f.ClaimOne(outcome)
			f.False(f.Row(c.ID).HasError)
			f.NoError(call(c.Receipt.Owner, fmt.Errorf("%s: %w", outcome, suite.ErrBoom), c.Receipt.Seq))
			f.Equal(outcome+": boom: the handler could not", f.Row(c.ID).LastError)
		}

		// A later outcome without an error leaves it there.
		f.MakeDue()
		c := f.Claim("abandon")
		f.Len(c, 1)
		f.Settle(suite.Settled(outbox.Ack, c...)...)
		f.Equal("abandon: boom: the handler could not", f.Row(c[0].ID).LastError)
	})
}

// What a handler has postponed was not tried: nothing is said of it, and what was said before stays.
func TestAPostponedMessageComesAgainAsItWas(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		id := f.EnqueueN("orders", 1)[0]
		messages := f.Subscribe(f.Subscriber(func(c *outbox.SubscriberConfig) { c.Backoff = func(int) time.Duration { return 0 } }), "orders")
		for _, answer := range []func(*outbox.Delivery){
			func(d *outbox.Delivery) { seam.Delivery(d).Postpone(time.Millisecond) },
			func(d *outbox.Delivery) { d.SetErr(suite.ErrBoom) },
			func(d *outbox.Delivery) { seam.Delivery(d).Postpone(time.Millisecond) },
		} {
			msg := f.Receive(messages)
			d, _ := outbox.DeliveryFrom(msg.Context())
			answer(d)
			msg.Nack()
		}
		msg := f.Receive(messages)
		d, _ := outbox.DeliveryFrom(msg.Context())
		f.Equal(2, d.Attempt())
		msg.Ack()
		f.Becomes(id, outbox.Done)
		f.Equal(suite.ErrBoom.Error(), f.Row(id).LastError)
		f.EqualValues(1, f.Number("SELECT COUNT(*) FROM %s", f.Object(f.Either("outbox_attempt", "Outbox_Attempt"))))
	})
}

func TestOBX036_FailEndsAMessageForGood(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.ClaimOne("orders")
		before := f.Now()
		f.NoError(f.Outbox.Fail(f.Context(), c.Receipt.Owner, suite.ErrBoom, c.Receipt.Seq))
		r := f.Row(c.ID)
		f.Equal(int(outbox.Failed), r.Status)
		f.Between(before, f.Now(), r.Processed)
		f.False(r.HasOwner || r.HasLease)
		f.True(r.HasProcessedBy)
		f.Equal(0, r.Retries)
		records, err := f.Outbox.Get(f.Context(), c.ID)
		f.NoError(err)
		f.Equal(outbox.Failed, records[0].Status)
		f.False(records[0].Status == outbox.Done, "it has ended, but was not processed")
	})
}

func TestSettleTakesReceiptsOfManyClaimsAndMixedOutcomes(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		var all []outbox.Settlement
		want := map[outbox.MessageID]outbox.Status{}
		for i := range 8 {
			c := f.ClaimOne("orders")
			outcome := outbox.Outcome(i % 4)
			all = append(all, outbox.Settlement{Receipt: c.Receipt, Outcome: outcome, Delay: map[bool]time.Duration{true: time.Hour}[outcome == outbox.Retry]})
			want[c.ID] = []outbox.Status{outbox.Done, outbox.Ready, outbox.Ready, outbox.Failed}[outcome]
			if outcome == outbox.Release {
				all[i].Delay = time.Hour // not to be claimed by the next turn
			}
		}
		f.Empty(f.Settle(all...))
		for id, status := range want {
			f.Equal(int(status), f.Row(id).Status)
		}
		_, err := f.Outbox.Settle(f.Context(), f.DB.DB, []outbox.Settlement{{Outcome: 4}})
		f.RequireField(err, "Settlement.Outcome")
		f.Len(f.Settle(all...), 8, "a second time, nothing is held")
		f.Empty(f.Settle())
	})
}

func TestOfTwoSettlementsOfOneReceiptTheFirstCounts(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.ClaimOne("orders")
		refused := f.Settle(suite.Settled(outbox.Fail, c, c)[0], suite.Settled(outbox.Ack, c)[0])
		f.Empty(refused)
		f.Equal(int(outbox.Failed), f.Row(c.ID).Status)
	})
}

func TestDeleteOnAckDeletesWhatIsAckedAndNothingElse(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		o := f.NewOutbox(f.DB.DB, func(c *outbox.Config) { c.DeleteOnAck = true })
		acked, failed, retried, stale := f.ClaimOne("a"), f.ClaimOne("b"), f.ClaimOne("c"), f.ClaimOne("d")
		refused, err := o.Settle(f.Context(), f.DB.DB, append(append(suite.Settled(outbox.Ack, acked), suite.Settled(outbox.Fail, failed)...),
			outbox.Settlement{Receipt: retried.Receipt, Outcome: outbox.Retry},
			outbox.Settlement{Receipt: outbox.Receipt{Seq: stale.Receipt.Seq, Owner: acked.Receipt.Owner}}))
		f.NoError(err)
		f.Equal([]outbox.WorkItemID{stale.Receipt.Seq}, refused)
		f.Empty(f.Rows("{message_id} = '%s'", acked.ID))
		f.Equal(int(outbox.Failed), f.Row(failed.ID).Status)
		f.Equal(int(outbox.Ready), f.Row(retried.ID).Status)
		f.Equal(int(outbox.InProgress), f.Row(stale.ID).Status)
	})
}
