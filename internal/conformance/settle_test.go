package conformance

import (
	"errors"
	"fmt"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/seam"
)

var errBoom = errors.New("boom: the handler could not")

func TestOBX021_022_023_AckMarksAsProcessed(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		worker := f.newOutbox(f.db.DB, func(c *outbox.Config) { c.WorkerName = "worker 7" })
		one, two, other := f.claimOne("orders"), f.claimOne("orders"), f.claimOne("orders")
		before := f.now()
		refused, err := worker.Settle(f.ctx(), f.db.DB, settled(outbox.Ack, one))
		f.NoError(err)
		f.Empty(refused)
		f.NoError(worker.Ack(f.ctx(), two.Receipt.Owner, two.Receipt.Seq))
		after := f.now()

		for _, c := range []outbox.Claimed{one, two} {
			r := f.row(c.ID)
			f.Equal(int(outbox.Done), r.status)
			f.between(before, after, r.processed)
			f.Equal("worker 7", r.processedBy)
			f.False(r.hasOwner || r.hasLease)
			f.Equal(0, r.retries)
		}
		f.Equal(int(outbox.InProgress), f.row(other.ID).status)
		records, err := f.outbox.Get(f.ctx(), one.ID)
		f.NoError(err)
		f.True(records[0].Status == outbox.Done)
		f.Equal("worker 7", records[0].ProcessedBy)

		// Without a name there is one that finds the process.
		f.NoError(f.outbox.Ack(f.ctx(), other.Receipt.Owner, other.Receipt.Seq))
		f.NotEmpty(f.row(other.ID).processedBy)
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
	f.t.Helper()
	mine, theirs, ended := f.claimOne("mine"), f.claimOne("theirs"), f.claimOne("ended")
	f.settle(settled(outbox.Ack, ended)...)
	ready := f.enqueueN("ready", 1)[0]
	unknown := outbox.WorkItemID(f.number("SELECT MAX({seq}) FROM {all}") + 1000)
	others := map[outbox.MessageID]row{theirs.ID: f.row(theirs.ID), ended.ID: f.row(ended.ID), ready: f.row(ready)}

	owner := mine.Receipt.Owner
	ids := []outbox.WorkItemID{theirs.Receipt.Seq, unknown, mine.Receipt.Seq, ended.Receipt.Seq, f.row(ready).seq}
	var settlements []outbox.Settlement
	for _, id := range ids {
		settlements = append(settlements, outbox.Settlement{Receipt: outbox.Receipt{Seq: id, Owner: owner}, Outcome: outcome})
	}
	refused := f.settle(settlements...)
	f.ElementsMatch([]outbox.WorkItemID{theirs.Receipt.Seq, unknown, ended.Receipt.Seq, f.row(ready).seq}, refused)
	f.Equal(int(status), f.row(mine.ID).status)
	for id, before := range others {
		after := f.row(id)
		before.isDue, after.isDue = false, false
		f.Equal(before, after)
	}

	// The calls of the specification ignore them without a word.
	for _, call := range []func() error{
		func() error { return f.outbox.Ack(f.ctx(), owner, ids...) },
		func() error { return f.outbox.Abandon(f.ctx(), owner, errBoom, ids...) },
		func() error { return f.outbox.Fail(f.ctx(), owner, errBoom, ids...) },
		func() error { return f.outbox.Ack(f.ctx(), owner) },
	} {
		f.NoError(call())
	}
	f.Equal(int(outbox.InProgress), f.row(theirs.ID).status)

	// The lease of the other is intact.
	f.Empty(f.settle(settled(outbox.Ack, theirs)...))
}

func TestOBX026_AnAckedMessageIsNeverClaimedAgain(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.claimOne("orders")
		f.settle(settled(outbox.Ack, c)...)
		f.comesBackNever(c)
	})
}

func TestOBX042_AFailedMessageIsNeverClaimedAgain(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.claimOne("orders")
		f.settle(settled(outbox.Fail, c)...)
		f.comesBackNever(c)
		// Unless somebody requeues it.
		n, err := f.outbox.Requeue(f.ctx(), outbox.RequeueParams{IDs: []outbox.MessageID{c.ID}})
		f.NoError(err)
		f.Equal(1, n)
		f.Len(f.claim("orders"), 1)
	})
}

// comesBackNever tries all that gives messages back.
func (f *fixture) comesBackNever(c outbox.Claimed) {
	f.t.Helper()
	f.exec("UPDATE {outbox_state} SET {next_attempt_at} = {past}")
	f.Empty(f.claim(c.Topic))
	n, err := f.outbox.ReapExpired(f.ctx())
	f.NoError(err)
	f.Zero(n)
	f.Empty(f.claim(c.Topic))
	refused, err := f.outbox.Renew(f.ctx(), time.Minute, c.Receipt)
	f.NoError(err)
	f.Equal([]outbox.WorkItemID{c.Receipt.Seq}, refused)
	f.Equal([]outbox.WorkItemID{c.Receipt.Seq}, f.settle(settled(outbox.Release, c)...))
	f.Empty(f.claim(c.Topic))
}

func TestOBX029_030_034_AbandonGivesBackAndCountsAnAttempt(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.claimOne("orders")
		f.NoError(f.outbox.Abandon(f.ctx(), c.Receipt.Owner, errBoom, c.Receipt.Seq))
		r := f.row(c.ID)
		f.Equal(int(outbox.Ready), r.status)
		f.False(r.hasOwner || r.hasLease)
		f.Equal(1, r.retries)
		f.Empty(f.claim("orders"), "not before the backoff has passed")
		f.makeDue()
		again := f.claim("orders")
		f.Len(again, 1)
		f.Equal(1, again[0].RetryCount)
	})
}

func TestOBX030_ReleaseSpendsNoAttempt(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.claimOne("orders")
		f.settle(settled(outbox.Release, c)...)
		r := f.row(c.ID)
		f.Equal(int(outbox.Ready), r.status)
		f.Equal(0, r.retries)
		f.False(r.hasOwner || r.hasLease || r.hasError)
		again := f.claim("orders")
		f.Len(again, 1, "it is due at once")
		f.settle(outbox.Settlement{Receipt: again[0].Receipt, Outcome: outbox.Release, Delay: time.Hour, Err: errors.New("broker down")})
		f.Empty(f.claim("orders"), "unless a delay is given")
		f.Equal("broker down", f.row(c.ID).lastError)
	})
}

func TestOBX031_055_056_TheBackoffDoublesFromOneSecondToOneMinute(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.enqueueN("orders", 1)
		for attempt, want := range []int{1, 2, 4, 8, 16, 32, 60, 60, 60} {
			c := f.claim("orders")
			f.Len(c, 1, "attempt %d", attempt)
			f.Equal(attempt, c[0].RetryCount)
			before := f.now()
			f.NoError(f.outbox.Abandon(f.ctx(), c[0].Receipt.Owner, errBoom, c[0].Receipt.Seq))
			delay := time.Duration(want) * time.Second
			f.between(before.Add(delay), f.now().Add(delay), f.row(c[0].ID).nextAttempt)
			f.Equal(delay, outbox.ExponentialBackoff(time.Second, time.Minute)(attempt), "the same as the policy of the subscriber")
			f.makeDue()
		}
		for _, retries := range []int{29, 30, 31, 62, 63, 64, 1000, 1 << 30} { // far beyond what a shift can hold
			f.exec("UPDATE {outbox_state} SET {retry_count} = %d", retries)
			c := f.claim("orders")
			f.Len(c, 1)
			before := f.now()
			f.settle(settled(outbox.Retry, c...)...)
			f.between(before.Add(time.Minute), f.now().Add(time.Minute), f.row(c[0].ID).nextAttempt)
			f.Equal(time.Minute, outbox.ExponentialBackoff(time.Second, time.Minute)(retries))
			f.makeDue()
		}
	})
}

func TestOBX057_TheDelayCanBeChosen(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.claimOne("orders")
		before := f.now()
		f.settle(outbox.Settlement{Receipt: c.Receipt, Outcome: outbox.Retry, Delay: 36 * time.Hour})
		f.between(before.Add(36*time.Hour), f.now().Add(36*time.Hour), f.row(c.ID).nextAttempt)
		f.makeDue()
		again := f.claim("orders")
		f.settle(outbox.Settlement{Receipt: again[0].Receipt, Outcome: outbox.Retry, Delay: -1})
		f.Len(f.claim("orders"), 1, "also none at all")

		_, err := f.outbox.Settle(f.ctx(), f.db.DB, []outbox.Settlement{{Outcome: outbox.Retry, Delay: -2}})
		f.requireField(err, "Settlement.Delay")
		_, err = f.outbox.Settle(f.ctx(), f.db.DB, []outbox.Settlement{{Outcome: outbox.Ack, Err: outbox.ErrClosed}})
		f.requireField(err, "Settlement.Err")

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
				return f.outbox.Abandon(f.ctx(), o, err, id)
			},
			"fail": func(o outbox.OwnerToken, err error, id outbox.WorkItemID) error {
				return f.outbox.Fail(f.ctx(), o, err, id)
			},
		} {
			c := f.claimOne(outcome)
			f.False(f.row(c.ID).hasError)
			f.NoError(call(c.Receipt.Owner, fmt.Errorf("%s: %w", outcome, errBoom), c.Receipt.Seq))
			f.Equal(outcome+": boom: the handler could not", f.row(c.ID).lastError)
		}

		// A later outcome without an error leaves it there.
		f.makeDue()
		c := f.claim("abandon")
		f.Len(c, 1)
		f.settle(settled(outbox.Ack, c...)...)
		f.Equal("abandon: boom: the handler could not", f.row(c[0].ID).lastError)
	})
}

// What a handler has postponed was not tried: nothing is said of it, and what was said before stays.
func TestAPostponedMessageComesAgainAsItWas(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		id := f.enqueueN("orders", 1)[0]
		messages := f.subscribe(f.subscriber(func(c *outbox.SubscriberConfig) { c.Backoff = func(int) time.Duration { return 0 } }), "orders")
		for _, answer := range []func(*outbox.Delivery){
			func(d *outbox.Delivery) { seam.Delivery(d).Postpone(time.Millisecond) },
			func(d *outbox.Delivery) { d.SetErr(errBoom) },
			func(d *outbox.Delivery) { seam.Delivery(d).Postpone(time.Millisecond) },
		} {
			msg := f.receive(messages)
			d, _ := outbox.DeliveryFrom(msg.Context())
			answer(d)
			msg.Nack()
		}
		msg := f.receive(messages)
		d, _ := outbox.DeliveryFrom(msg.Context())
		f.Equal(2, d.Attempt())
		msg.Ack()
		f.becomes(id, outbox.Done)
		f.Equal(errBoom.Error(), f.row(id).lastError)
		f.EqualValues(1, f.number("SELECT COUNT(*) FROM %s", f.object(f.either("outbox_attempt", "Outbox_Attempt"))))
	})
}

func TestOBX036_FailEndsAMessageForGood(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.claimOne("orders")
		before := f.now()
		f.NoError(f.outbox.Fail(f.ctx(), c.Receipt.Owner, errBoom, c.Receipt.Seq))
		r := f.row(c.ID)
		f.Equal(int(outbox.Failed), r.status)
		f.between(before, f.now(), r.processed)
		f.False(r.hasOwner || r.hasLease)
		f.True(r.hasProcessedBy)
		f.Equal(0, r.retries)
		records, err := f.outbox.Get(f.ctx(), c.ID)
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
			c := f.claimOne("orders")
			outcome := outbox.Outcome(i % 4)
			all = append(all, outbox.Settlement{Receipt: c.Receipt, Outcome: outcome, Delay: map[bool]time.Duration{true: time.Hour}[outcome == outbox.Retry]})
			want[c.ID] = []outbox.Status{outbox.Done, outbox.Ready, outbox.Ready, outbox.Failed}[outcome]
			if outcome == outbox.Release {
				all[i].Delay = time.Hour // not to be claimed by the next turn
			}
		}
		f.Empty(f.settle(all...))
		for id, status := range want {
			f.Equal(int(status), f.row(id).status)
		}
		_, err := f.outbox.Settle(f.ctx(), f.db.DB, []outbox.Settlement{{Outcome: 4}})
		f.requireField(err, "Settlement.Outcome")
		f.Len(f.settle(all...), 8, "a second time, nothing is held")
		f.Empty(f.settle())
	})
}

func TestOfTwoSettlementsOfOneReceiptTheFirstCounts(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.claimOne("orders")
		refused := f.settle(settled(outbox.Fail, c, c)[0], settled(outbox.Ack, c)[0])
		f.Empty(refused)
		f.Equal(int(outbox.Failed), f.row(c.ID).status)
	})
}

func TestDeleteOnAckDeletesWhatIsAckedAndNothingElse(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		o := f.newOutbox(f.db.DB, func(c *outbox.Config) { c.DeleteOnAck = true })
		acked, failed, retried, stale := f.claimOne("a"), f.claimOne("b"), f.claimOne("c"), f.claimOne("d")
		refused, err := o.Settle(f.ctx(), f.db.DB, append(append(settled(outbox.Ack, acked), settled(outbox.Fail, failed)...),
			outbox.Settlement{Receipt: retried.Receipt, Outcome: outbox.Retry},
			outbox.Settlement{Receipt: outbox.Receipt{Seq: stale.Receipt.Seq, Owner: acked.Receipt.Owner}}))
		f.NoError(err)
		f.Equal([]outbox.WorkItemID{stale.Receipt.Seq}, refused)
		f.Empty(f.rows("{message_id} = '%s'", acked.ID))
		f.Equal(int(outbox.Failed), f.row(failed.ID).status)
		f.Equal(int(outbox.Ready), f.row(retried.ID).status)
		f.Equal(int(outbox.InProgress), f.row(stale.ID).status)
	})
}
