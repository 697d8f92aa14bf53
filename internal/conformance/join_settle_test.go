package conformance

import (
	"fmt"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/join"
)

func TestJOIN030_OBX027_083_AckCompletesTheStepInEachJoin(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) { f.endsCount(outbox.Ack, join.StepCompleted) })
}

func TestJOIN031_OBX040_083_FailFailsTheStepInEachJoin(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) { f.endsCount(outbox.Fail, join.StepFailed) })
}

// endsCount settles fifty messages in one call, of which each join has some; nobody reports anything.
func (f *fixture) endsCount(outcome outbox.Outcome, status join.StepStatus) {
	f.t.Helper()
	c := f.joins()
	all := f.start(c, join.StartParams{ExpectedSteps: 60})
	few := f.start(c, join.StartParams{ExpectedSteps: 60})
	none := f.start(c, join.StartParams{ExpectedSteps: 60})
	ids := f.enqueueN("s", 50)
	f.NoError(c.Attach(f.ctx(), nil, all, ids...))
	f.NoError(c.Attach(f.ctx(), nil, few, ids[:7]...))
	f.NoError(c.Attach(f.ctx(), nil, none, f.enqueueN("other", 3)...))
	f.enqueueN("s", 10) // steps of nothing
	claimed := f.claim("s")
	f.Len(claimed, 60)
	f.Empty(f.settle(settled(outcome, claimed...)...))

	want := func(n int) (completed, failed int) {
		if outcome == outbox.Ack {
			return n, 0
		}
		return 0, n
	}
	for id, n := range map[join.ID]int{all: 50, few: 7, none: 0} {
		completed, failed := want(n)
		f.stands(c, id, join.Pending, completed, failed)
	}
	for _, id := range ids {
		f.Equal(status, f.step(all, id))
	}

	// The calls of the specification do the same.
	one := f.claimOne("one")
	f.NoError(c.Attach(f.ctx(), nil, none, one.ID))
	if outcome == outbox.Ack {
		f.NoError(f.outbox.Ack(f.ctx(), one.Receipt.Owner, one.Receipt.Seq))
	} else {
		f.NoError(f.outbox.Fail(f.ctx(), one.Receipt.Owner, errBoom, one.Receipt.Seq))
	}
	completed, failed := want(1)
	f.stands(c, none, join.Pending, completed, failed)
}

// Whoever settles in SQL counts as well.
func TestJOIN030_031_TheProceduresCountToo(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.needs(procedures)
		c := f.joins()
		id, _ := f.startWith(c, "s", 3)
		claimed := f.claim("s")
		for i, procedure := range []string{"ack", "fail", "abandon"} {
			args := []any{claimed[i].Receipt.Owner.String(), fmt.Sprintf("[%d]", claimed[i].Receipt.Seq)}
			if procedure != "ack" {
				args = append(args, "by hand")
			}
			f.call(procedure, args...)
		}
		f.stands(c, id, join.Pending, 1, 1)
	})
}

func TestJOIN081_OBX027_040_AMessageCountsInAllItsJoins(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		done, failed := f.claimOne("s"), f.claimOne("s")
		var joins []join.ID
		for range 5 {
			id := f.start(c, join.StartParams{ExpectedSteps: 2})
			f.NoError(c.Attach(f.ctx(), nil, id, done.ID, failed.ID))
			joins = append(joins, id)
		}
		f.Empty(f.settle(append(settled(outbox.Ack, done), settled(outbox.Fail, failed)...)...))
		for _, id := range joins {
			f.stands(c, id, join.Failed, 1, 1)
			f.Equal(map[outbox.MessageID]join.StepStatus{done.ID: join.StepCompleted, failed.ID: join.StepFailed}, f.steps(id))
		}
	})
}

// refuseCounting makes the database refuse what a count writes, first to the steps or first to the joins.
func (f *fixture) refuseCounting(table, condition string) (allow func()) {
	f.t.Helper()
	if f.db.Name == testdb.SQLite {
		f.exec("CREATE TRIGGER refuse_counting BEFORE UPDATE ON %s WHEN NOT (%s) BEGIN SELECT RAISE(ABORT, 'refused'); END",
			f.joinTable(table), condition)
		return func() { f.exec("DROP TRIGGER refuse_counting") }
	}
	f.exec("ALTER TABLE {%s} ADD CONSTRAINT refuse_counting CHECK (%s)", table, condition)
	return func() { f.exec("ALTER TABLE {%s} DROP CONSTRAINT refuse_counting", table) }
}

func (f *fixture) refusals() map[string]string {
	of := map[string]string{"join": "%s{completed_steps} = 0 AND %[1]s{failed_steps} = 0", "member": "%s{status} = 0"}
	prefix := ""
	if f.db.Name == testdb.SQLite {
		prefix = "NEW."
	}
	for table, condition := range of {
		of[table] = f.sql(condition, prefix)
	}
	return of
}

func TestJOIN032_OBX028_041_TheMessageEndsAndCountsInOneTransaction(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		id, _ := f.startWith(c, "s", 2)
		claimed := f.claim("s")
		for table, condition := range f.refusals() {
			allow := f.refuseCounting(table, condition)
			for _, outcome := range []outbox.Outcome{outbox.Ack, outbox.Fail} {
				_, err := f.outbox.Settle(f.ctx(), f.db.DB, settled(outcome, claimed...))
				f.Error(err, "the %s refuses", table)
				for _, s := range claimed {
					f.Equal(int(outbox.InProgress), f.row(s.ID).status, "what cannot be counted does not end")
					f.Equal(join.StepPending, f.step(id, s.ID))
				}
				f.stands(c, id, join.Pending, 0, 0)
			}
			allow()
		}

		// In a caller's transaction, all of it is the caller's to commit.
		for _, commit := range []bool{false, true} {
			tx, err := f.db.BeginTx(f.ctx(), nil)
			f.NoError(err)
			refused, err := f.outbox.Settle(f.ctx(), tx, append(settled(outbox.Ack, claimed[0]), settled(outbox.Fail, claimed[1])...))
			f.NoError(err)
			f.Empty(refused)
			if commit {
				f.NoError(tx.Commit())
				f.stands(c, id, join.Failed, 1, 1)
			} else {
				f.NoError(tx.Rollback())
				f.stands(c, id, join.Pending, 0, 0)
				f.Equal(join.StepPending, f.step(id, claimed[0].ID))
			}
		}
	})
}

// Nothing but an end counts, and only for whoever holds the message.
func TestJOIN030_031_WhatIsNoEndCountsNothing(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		id, steps := f.startWith(c, "s", 5)
		first := f.claim("s")
		f.settle(settled(outbox.Retry, first[0])...)
		f.settle(settled(outbox.Release, first[1])...)
		f.expireLeases()
		n, err := f.outbox.ReapExpired(f.ctx())
		f.NoError(err)
		f.Equal(3, n)
		f.makeDue()
		second := f.claim("s")
		f.Len(second, 5)
		for _, outcome := range []outbox.Outcome{outbox.Ack, outbox.Fail} {
			f.Len(f.settle(settled(outcome, first...)...), 5, "a stale worker")
		}
		f.stands(c, id, join.Pending, 0, 0)

		// One receipt that is still good, among others that are not, counts one.
		f.Len(f.settle(append(settled(outbox.Ack, first...), settled(outbox.Ack, second[2])...)...), 5)
		f.stands(c, id, join.Pending, 1, 0)
		f.Len(f.settle(settled(outbox.Ack, second[2])...), 1, "again")
		f.stands(c, id, join.Pending, 1, 0)
		for i, s := range second {
			want := join.StepPending
			if i == 2 {
				want = join.StepCompleted
			}
			f.Equal(want, f.step(id, s.ID))
		}
		f.Len(steps, 5)
	})
}

func TestJOIN040_OBX084_AJoinIsCompleteWhenAllItsStepsHaveEnded(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		for failures := range 4 {
			id, _ := f.startWith(c, "s", 3)
			for i, s := range f.claim("s") {
				f.stands(c, id, join.Pending, max(0, i-failures), min(i, failures))
				outcome := outbox.Ack
				if i < failures {
					outcome = outbox.Fail
				}
				f.settle(settled(outcome, s)...)
			}
			f.NotEqual(join.Pending, f.join(c, id).Status)
		}
		// All that there are is not all that are expected.
		id := f.start(c, join.StartParams{ExpectedSteps: 3})
		f.addSteps(c, id, "s", 2)
		f.settle(settled(outbox.Ack, f.claim("s")...)...)
		f.stands(c, id, join.Pending, 2, 0)
	})
}

func TestJOIN041_AJoinEndsAsFailedIfAStepFailed(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		for _, end := range []struct {
			outcomes []outbox.Outcome
			status   join.Status
		}{
			{[]outbox.Outcome{outbox.Ack}, join.Completed},
			{[]outbox.Outcome{outbox.Fail}, join.Failed},
			{[]outbox.Outcome{outbox.Ack, outbox.Ack, outbox.Ack}, join.Completed},
			{[]outbox.Outcome{outbox.Fail, outbox.Ack, outbox.Ack}, join.Failed},
			{[]outbox.Outcome{outbox.Ack, outbox.Ack, outbox.Fail}, join.Failed},
			{[]outbox.Outcome{outbox.Fail, outbox.Fail, outbox.Fail}, join.Failed},
		} {
			together, _ := f.startWith(c, "together", len(end.outcomes))
			apart, _ := f.startWith(c, "apart", len(end.outcomes))
			var settlements []outbox.Settlement
			failed := 0
			for i, s := range f.claim("together") {
				settlements = append(settlements, settled(end.outcomes[i], s)...)
			}
			for i, s := range f.claim("apart") {
				f.settle(settled(end.outcomes[i], s)...)
				failed += int(end.outcomes[i]) / int(outbox.Fail)
			}
			f.settle(settlements...)
			f.stands(c, together, end.status, len(end.outcomes)-failed, failed)
			f.stands(c, apart, end.status, len(end.outcomes)-failed, failed)
		}
		f.Equal("pending completed failed cancelled", fmt.Sprint(join.Pending, " ", join.Completed, " ", join.Failed, " ", join.Cancelled))
	})
}

func TestJOIN042_AnEndedJoinNeverChanges(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		quorum := f.start(c, join.StartParams{ExpectedSteps: 4, Quorum: 1})
		fast := f.start(c, join.StartParams{ExpectedSteps: 4, FailFast: true})
		cancelled := f.start(c, join.StartParams{ExpectedSteps: 4})
		joins := []join.ID{quorum, fast, cancelled}
		ids := f.enqueueN("s", 4)
		for _, id := range joins {
			f.NoError(c.Attach(f.ctx(), nil, id, ids...))
		}
		held := f.claim("s")
		f.settle(settled(outbox.Fail, held[0])...)
		f.settle(settled(outbox.Ack, held[1])...)
		f.NoError(c.Cancel(f.ctx(), nil, cancelled))
		f.stands(c, quorum, join.Completed, 1, 1)
		f.stands(c, fast, join.Failed, 0, 1)
		f.stands(c, cancelled, join.Cancelled, 1, 1)

		var before []joinRow
		for _, id := range joins {
			f.backdate(id)
			before = append(before, f.joinRow(id))
		}
		f.settle(settled(outbox.Ack, held[2])...)
		for _, id := range joins {
			f.NoError(c.ReportStepFailed(f.ctx(), nil, id, held[3].ID), "a late report is no error")
			f.NoError(c.ReportStepCompleted(f.ctx(), nil, id, held[0].ID))
			f.ErrorIs(c.Cancel(f.ctx(), nil, id), join.ErrEnded)
			f.ErrorIs(c.Seal(f.ctx(), nil, id), join.ErrEnded)
			f.ErrorIs(c.Attach(f.ctx(), nil, id, f.enqueueN("more", 1)[0]), join.ErrEnded)
		}
		f.settle(settled(outbox.Ack, held[3])...)
		for i, id := range joins {
			f.Equal(before[i], f.joinRow(id), "the join and its times stay as they were")
			f.Equal(join.StepCompleted, f.step(id, held[2].ID), "a step that ends later has ended")
			f.Equal(join.StepFailed, f.step(id, held[3].ID))
		}
	})
}

func TestJOIN043_LastUpdatedFollowsEachChange(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		id, _ := f.startWith(c, "s", 4)
		held, done := f.claim("s"), f.claimOne("done")
		f.settle(settled(outbox.Ack, done)...)
		another := f.start(c, join.StartParams{ExpectedSteps: 3})
		changes := map[string]func(){
			"ack":              func() { f.settle(settled(outbox.Ack, held[0])...) },
			"fail":             func() { f.settle(settled(outbox.Fail, held[1])...) },
			"report":           func() { f.NoError(c.ReportStepCompleted(f.ctx(), nil, id, held[2].ID)) },
			"report a failure": func() { f.NoError(c.ReportStepFailed(f.ctx(), nil, id, held[3].ID)) },
		}
		for name, change := range changes {
			f.backdate(id)
			before := f.now()
			change()
			r := f.joinRow(id)
			f.between(before, f.now(), r.updated)
			f.WithinDuration(before.Add(-time.Hour), r.created, time.Minute, "%s: created it was only once", name)
		}
		f.stands(c, id, join.Failed, 2, 2)
		for _, change := range []func(){
			func() { f.NoError(c.Attach(f.ctx(), nil, another, done.ID)) },
			func() { f.NoError(c.Cancel(f.ctx(), nil, another)) },
		} {
			f.backdate(another)
			before := f.now()
			change()
			f.between(before, f.now(), f.joinRow(another).updated)
		}
	})
}

// A message that failed and is requeued runs again; its step has ended once.
func TestJOIN042_ARequeuedStepStaysFailed(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		id, steps := f.startWith(c, "s", 2)
		f.settle(settled(outbox.Fail, f.claim("s")[:1]...)...)
		n, err := f.outbox.Requeue(f.ctx(), outbox.RequeueParams{All: true})
		f.NoError(err)
		f.Equal(1, n)
		f.expireLeases()
		f.settle(settled(outbox.Ack, f.claim("s")...)...)
		f.stands(c, id, join.Failed, 1, 1)
		f.Len(steps, 2)
	})
}

// A subscriber settles like anyone else: handlers know nothing of joins.
func TestJOIN030_031_OBX083_HandlersNeedNotKnow(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		s := f.subscriber(func(c *outbox.SubscriberConfig) { c.MaxAttempts = 2 })
		messages := f.subscribe(s, "s")
		id, _ := f.startWith(c, "s", 3)
		for range 2 {
			f.receive(messages).Ack()
		}
		last := f.receive(messages)
		step := f.delivery(last).MessageID()
		last.Nack() // the first of two attempts
		last = f.receive(messages)
		f.Equal(step, f.delivery(last).MessageID())
		f.stands(c, id, join.Pending, 2, 0)
		last.Nack()
		f.becomes(step, outbox.Failed)
		f.Eventually(func() bool { return f.joinRow(id).status != 0 }, patience, time.Millisecond)
		f.stands(c, id, join.Failed, 2, 1)
	})
}
