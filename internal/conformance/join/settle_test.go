package join_test

import (
	"fmt"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
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
	f.T.Helper()
	c := f.Joins()
	all := f.Start(c, join.StartParams{ExpectedSteps: 60})
	few := f.Start(c, join.StartParams{ExpectedSteps: 60})
	none := f.Start(c, join.StartParams{ExpectedSteps: 60})
	ids := f.EnqueueN("s", 50)
	f.NoError(c.Attach(f.Context(), nil, all, ids...))
	f.NoError(c.Attach(f.Context(), nil, few, ids[:7]...))
	f.NoError(c.Attach(f.Context(), nil, none, f.EnqueueN("other", 3)...))
	f.EnqueueN("s", 10) // steps of nothing
	claimed := f.Claim("s")
	f.Len(claimed, 60)
	f.Empty(f.Settle(suite.Settled(outcome, claimed...)...))

	want := func(n int) (completed, failed int) {
		if outcome == outbox.Ack {
			return n, 0
		}
		return 0, n
	}
	for id, n := range map[join.ID]int{all: 50, few: 7, none: 0} {
		completed, failed := want(n)
		f.Stands(c, id, join.Pending, completed, failed)
	}
	for _, id := range ids {
		f.Equal(status, f.Step(all, id))
	}

	// The calls of the specification do the same.
	one := f.ClaimOne("one")
	f.NoError(c.Attach(f.Context(), nil, none, one.ID))
	if outcome == outbox.Ack {
		f.NoError(f.Outbox.Ack(f.Context(), one.Receipt.Owner, one.Receipt.Seq))
	} else {
		f.NoError(f.Outbox.Fail(f.Context(), one.Receipt.Owner, suite.ErrBoom, one.Receipt.Seq))
	}
	completed, failed := want(1)
	f.Stands(c, none, join.Pending, completed, failed)
}

// Whoever settles in SQL counts as well.
func TestJOIN030_031_TheProceduresCountToo(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Needs(suite.Procedures)
		c := f.Joins()
		id, _ := f.StartWith(c, "s", 3)
		claimed := f.Claim("s")
		for i, procedure := range []string{"ack", "fail", "abandon"} {
			args := []any{claimed[i].Receipt.Owner.String(), fmt.Sprintf("[%d]", claimed[i].Receipt.Seq)}
			if procedure != "ack" {
				args = append(args, "by hand")
			}
			f.Call(procedure, args...)
		}
		f.Stands(c, id, join.Pending, 1, 1)
	})
}

func TestJOIN081_OBX027_040_AMessageCountsInAllItsJoins(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		done, failed := f.ClaimOne("s"), f.ClaimOne("s")
		var joins []join.ID
		for range 5 {
			id := f.Start(c, join.StartParams{ExpectedSteps: 2})
			f.NoError(c.Attach(f.Context(), nil, id, done.ID, failed.ID))
			joins = append(joins, id)
		}
		f.Empty(f.Settle(append(suite.Settled(outbox.Ack, done), suite.Settled(outbox.Fail, failed)...)...))
		for _, id := range joins {
			f.Stands(c, id, join.Failed, 1, 1)
			f.Equal(map[outbox.MessageID]join.StepStatus{done.ID: join.StepCompleted, failed.ID: join.StepFailed}, f.Steps(id))
		}
	})
}

// refuseCounting makes the database refuse what a count writes, first to the steps or first to the joins.
func (f *fixture) refuseCounting(table, condition string) (allow func()) {
	f.T.Helper()
	if f.DB.Name == testdb.SQLite {
		f.Exec("CREATE TRIGGER refuse_counting BEFORE UPDATE ON %s WHEN NOT (%s) BEGIN SELECT RAISE(ABORT, 'refused'); END",
			f.JoinTable(table), condition)
		return func() { f.Exec("DROP TRIGGER refuse_counting") }
	}
	f.Exec("ALTER TABLE {%s} ADD CONSTRAINT refuse_counting CHECK (%s)", table, condition)
	return func() { f.Exec("ALTER TABLE {%s} DROP CONSTRAINT refuse_counting", table) }
}

func (f *fixture) refusals() map[string]string {
	of := map[string]string{"join": "%s{completed_steps} = 0 AND %[1]s{failed_steps} = 0", "member": "%s{status} = 0"}
	prefix := ""
	if f.DB.Name == testdb.SQLite {
		prefix = "NEW."
	}
	for table, condition := range of {
		of[table] = f.SQL(condition, prefix)
	}
	return of
}

func TestJOIN032_OBX028_041_TheMessageEndsAndCountsInOneTransaction(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		id, _ := f.StartWith(c, "s", 2)
		claimed := f.Claim("s")
		for table, condition := range f.refusals() {
			allow := f.refuseCounting(table, condition)
			for _, outcome := range []outbox.Outcome{outbox.Ack, outbox.Fail} {
				_, err := f.Outbox.Settle(f.Context(), f.DB.DB, suite.Settled(outcome, claimed...))
				f.Error(err, "the %s refuses", table)
				for _, s := range claimed {
					f.Equal(int(outbox.InProgress), f.Row(s.ID).Status, "what cannot be counted does not end")
					f.Equal(join.StepPending, f.Step(id, s.ID))
				}
				f.Stands(c, id, join.Pending, 0, 0)
			}
			allow()
		}

		// In a caller's transaction, all of it is the caller's to commit.
		for _, commit := range []bool{false, true} {
			tx, err := f.DB.BeginTx(f.Context(), nil)
			f.NoError(err)
			refused, err := f.Outbox.Settle(f.Context(), tx, append(suite.Settled(outbox.Ack, claimed[0]), suite.Settled(outbox.Fail, claimed[1])...))
			f.NoError(err)
			f.Empty(refused)
			if commit {
				f.NoError(tx.Commit())
				f.Stands(c, id, join.Failed, 1, 1)
			} else {
				f.NoError(tx.Rollback())
				f.Stands(c, id, join.Pending, 0, 0)
				f.Equal(join.StepPending, f.Step(id, claimed[0].ID))
			}
		}
	})
}

// Nothing but an end counts, and only for whoever holds the message.
func TestJOIN030_031_WhatIsNoEndCountsNothing(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		id, steps := f.StartWith(c, "s", 5)
		first := f.Claim("s")
		f.Settle(suite.Settled(outbox.Retry, first[0])...)
		f.Settle(suite.Settled(outbox.Release, first[1])...)
		f.ExpireLeases()
		n, err := f.Outbox.ReapExpired(f.Context())
		f.NoError(err)
		f.Equal(3, n)
		f.MakeDue()
		second := f.Claim("s")
		f.Len(second, 5)
		for _, outcome := range []outbox.Outcome{outbox.Ack, outbox.Fail} {
			f.Len(f.Settle(suite.Settled(outcome, first...)...), 5, "a stale worker")
		}
		f.Stands(c, id, join.Pending, 0, 0)

		// One receipt that is still good, among others that are not, counts one.
		f.Len(f.Settle(append(suite.Settled(outbox.Ack, first...), suite.Settled(outbox.Ack, second[2])...)...), 5)
		f.Stands(c, id, join.Pending, 1, 0)
		f.Len(f.Settle(suite.Settled(outbox.Ack, second[2])...), 1, "again")
		f.Stands(c, id, join.Pending, 1, 0)
		for i, s := range second {
			want := join.StepPending
			if i == 2 {
				want = join.StepCompleted
			}
			f.Equal(want, f.Step(id, s.ID))
		}
		f.Len(steps, 5)
	})
}

func TestJOIN040_OBX084_AJoinIsCompleteWhenAllItsStepsHaveEnded(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		for failures := range 4 {
			id, _ := f.StartWith(c, "s", 3)
			for i, s := range f.Claim("s") {
				f.Stands(c, id, join.Pending, max(0, i-failures), min(i, failures))
				outcome := outbox.Ack
				if i < failures {
					outcome = outbox.Fail
				}
				f.Settle(suite.Settled(outcome, s)...)
			}
			f.NotEqual(join.Pending, f.Join(c, id).Status)
		}
		// All that there are is not all that are expected.
		id := f.Start(c, join.StartParams{ExpectedSteps: 3})
		f.AddSteps(c, id, "s", 2)
		f.Settle(suite.Settled(outbox.Ack, f.Claim("s")...)...)
		f.Stands(c, id, join.Pending, 2, 0)
	})
}

func TestJOIN041_AJoinEndsAsFailedIfAStepFailed(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
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
			together, _ := f.StartWith(c, "together", len(end.outcomes))
			apart, _ := f.StartWith(c, "apart", len(end.outcomes))
			var settlements []outbox.Settlement
			failed := 0
			for i, s := range f.Claim("together") {
				settlements = append(settlements, suite.Settled(end.outcomes[i], s)...)
			}
			for i, s := range f.Claim("apart") {
				f.Settle(suite.Settled(end.outcomes[i], s)...)
				failed += int(end.outcomes[i]) / int(outbox.Fail)
			}
			f.Settle(settlements...)
			f.Stands(c, together, end.status, len(end.outcomes)-failed, failed)
			f.Stands(c, apart, end.status, len(end.outcomes)-failed, failed)
		}
		f.Equal("pending completed failed cancelled", fmt.Sprint(join.Pending, " ", join.Completed, " ", join.Failed, " ", join.Cancelled))
	})
}

func TestJOIN042_AnEndedJoinNeverChanges(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		quorum := f.Start(c, join.StartParams{ExpectedSteps: 4, Quorum: 1})
		fast := f.Start(c, join.StartParams{ExpectedSteps: 4, FailFast: true})
		cancelled := f.Start(c, join.StartParams{ExpectedSteps: 4})
		joins := []join.ID{quorum, fast, cancelled}
		ids := f.EnqueueN("s", 4)
		for _, id := range joins {
			f.NoError(c.Attach(f.Context(), nil, id, ids...))
		}
		held := f.Claim("s")
		f.Settle(suite.Settled(outbox.Fail, held[0])...)
		f.Settle(suite.Settled(outbox.Ack, held[1])...)
		f.NoError(c.Cancel(f.Context(), nil, cancelled))
		f.Stands(c, quorum, join.Completed, 1, 1)
		f.Stands(c, fast, join.Failed, 0, 1)
		f.Stands(c, cancelled, join.Cancelled, 1, 1)

		var before []suite.JoinRow
		for _, id := range joins {
			f.Backdate(id)
			before = append(before, f.JoinRow(id))
		}
		f.Settle(suite.Settled(outbox.Ack, held[2])...)
		for _, id := range joins {
			f.NoError(c.ReportStepFailed(f.Context(), nil, id, held[3].ID), "a late report is no error")
			f.NoError(c.ReportStepCompleted(f.Context(), nil, id, held[0].ID))
			f.ErrorIs(c.Cancel(f.Context(), nil, id), join.ErrEnded)
			f.ErrorIs(c.Seal(f.Context(), nil, id), join.ErrEnded)
			f.ErrorIs(c.Attach(f.Context(), nil, id, f.EnqueueN("more", 1)[0]), join.ErrEnded)
		}
		f.Settle(suite.Settled(outbox.Ack, held[3])...)
		for i, id := range joins {
			f.Equal(before[i], f.JoinRow(id), "the join and its times stay as they were")
			f.Equal(join.StepCompleted, f.Step(id, held[2].ID), "a step that ends later has ended")
			f.Equal(join.StepFailed, f.Step(id, held[3].ID))
		}
	})
}

func TestJOIN043_LastUpdatedFollowsEachChange(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		id, _ := f.StartWith(c, "s", 4)
		held, done := f.Claim("s"), f.ClaimOne("done")
		f.Settle(suite.Settled(outbox.Ack, done)...)
		another := f.Start(c, join.StartParams{ExpectedSteps: 3})
		changes := map[string]func(){
			"ack":              func() { f.Settle(suite.Settled(outbox.Ack, held[0])...) },
			"fail":             func() { f.Settle(suite.Settled(outbox.Fail, held[1])...) },
			"report":           func() { f.NoError(c.ReportStepCompleted(f.Context(), nil, id, held[2].ID)) },
			"report a failure": func() { f.NoError(c.ReportStepFailed(f.Context(), nil, id, held[3].ID)) },
		}
		for name, change := range changes {
			f.Backdate(id)
			before := f.Now()
			change()
			r := f.JoinRow(id)
			f.Between(before, f.Now(), r.Updated)
			f.WithinDuration(before.Add(-time.Hour), r.Created, time.Minute, "%s: created it was only once", name)
		}
		f.Stands(c, id, join.Failed, 2, 2)
		for _, change := range []func(){
			func() { f.NoError(c.Attach(f.Context(), nil, another, done.ID)) },
			func() { f.NoError(c.Cancel(f.Context(), nil, another)) },
		} {
			f.Backdate(another)
			before := f.Now()
			change()
			f.Between(before, f.Now(), f.JoinRow(another).Updated)
		}
	})
}

// A message that failed and is requeued runs again; its step has ended once.
func TestJOIN042_ARequeuedStepStaysFailed(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		id, steps := f.StartWith(c, "s", 2)
		f.Settle(suite.Settled(outbox.Fail, f.Claim("s")[:1]...)...)
		n, err := f.Outbox.Requeue(f.Context(), outbox.RequeueParams{All: true})
		f.NoError(err)
		f.Equal(1, n)
		f.ExpireLeases()
		f.Settle(suite.Settled(outbox.Ack, f.Claim("s")...)...)
		f.Stands(c, id, join.Failed, 1, 1)
		f.Len(steps, 2)
	})
}

// A subscriber settles like anyone else: handlers know nothing of joins.
func TestJOIN030_031_OBX083_HandlersNeedNotKnow(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		s := f.Subscriber(func(c *outbox.SubscriberConfig) { c.MaxAttempts = 2 })
		messages := f.Subscribe(s, "s")
		id, _ := f.StartWith(c, "s", 3)
		for range 2 {
			f.Receive(messages).Ack()
		}
		last := f.Receive(messages)
		step := f.Delivery(last).MessageID()
		last.Nack() // the first of two attempts
		last = f.Receive(messages)
		f.Equal(step, f.Delivery(last).MessageID())
		f.Stands(c, id, join.Pending, 2, 0)
		last.Nack()
		f.Becomes(step, outbox.Failed)
		f.Eventually(func() bool { return f.JoinRow(id).Status != 0 }, suite.Patience, time.Millisecond)
		f.Stands(c, id, join.Failed, 2, 1)
	})
}
