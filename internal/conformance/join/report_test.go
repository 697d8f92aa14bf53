package join_test

import (
	"testing"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/join"
)

func TestJOIN020_OBX079_AReportedCompletionCounts(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		id, steps := f.StartWith(c, "s", 2)
		f.NoError(c.ReportStepCompleted(f.Context(), nil, id, steps[0]))
		f.Stands(c, id, join.Pending, 1, 0)
		f.Equal(map[outbox.MessageID]join.StepStatus{steps[0]: join.StepCompleted, steps[1]: join.StepPending}, f.Steps(id))
		f.NoError(c.ReportStepCompleted(f.Context(), f.DB, id, steps[1]))
		f.Stands(c, id, join.Completed, 2, 0)
		f.Equal(int(outbox.Ready), f.Row(steps[0]).Status, "the message itself is as it was")
	})
}

func TestJOIN021_OBX081_AReportedFailureCounts(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		id, steps := f.StartWith(c, "s", 2)
		f.NoError(c.ReportStepFailed(f.Context(), nil, id, steps[0]))
		f.Stands(c, id, join.Pending, 0, 1)
		f.Equal(map[outbox.MessageID]join.StepStatus{steps[0]: join.StepFailed, steps[1]: join.StepPending}, f.Steps(id))
		f.NoError(c.ReportStepCompleted(f.Context(), nil, id, steps[1]))
		f.Stands(c, id, join.Failed, 1, 1)
	})
}

func TestJOIN022_OBX080_082_AReportRepeatedChangesNothing(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		id, steps := f.StartWith(c, "s", 4)
		held := f.Claim("s")
		f.NoError(c.ReportStepCompleted(f.Context(), nil, id, steps[0]))
		f.NoError(c.ReportStepFailed(f.Context(), nil, id, steps[1]))
		f.Settle(suite.Settled(outbox.Ack, held[2])...)
		f.Backdate(id)
		before, stepsBefore := f.JoinRow(id), f.Steps(id)
		for range 2 {
			for _, step := range steps[:3] {
				f.NoError(c.ReportStepCompleted(f.Context(), nil, id, step), "the same, or the other")
				f.NoError(c.ReportStepFailed(f.Context(), nil, id, step))
			}
		}
		f.Equal(before, f.JoinRow(id), "not even the time")
		f.Equal(stepsBefore, f.Steps(id))
		f.Settle(suite.Settled(outbox.Ack, held[1])...)
		f.Settle(suite.Settled(outbox.Fail, held[0])...)
		f.Equal(before, f.JoinRow(id), "nor does the message's own end count again")
		f.Stands(c, id, join.Pending, 2, 1)
	})
}

func TestJOIN024_AReportIsOneTransaction(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		id, steps := f.StartWith(c, "s", 2)
		for table, condition := range f.refusals() {
			allow := f.refuseCounting(table, condition)
			f.Error(c.ReportStepCompleted(f.Context(), nil, id, steps[0]), "the %s refuses", table)
			f.Error(c.ReportStepFailed(f.Context(), nil, id, steps[1]))
			f.Stands(c, id, join.Pending, 0, 0)
			f.Equal(map[outbox.MessageID]join.StepStatus{steps[0]: join.StepPending, steps[1]: join.StepPending}, f.Steps(id))
			allow()
		}
		f.NoError(c.ReportStepCompleted(f.Context(), nil, id, steps[0]))
		f.NoError(c.ReportStepCompleted(f.Context(), nil, id, steps[1]))
		f.Stands(c, id, join.Completed, 2, 0)
	})
}

// The same ends, one by settling and one by hand, leave the same joins behind.
func TestJOIN034_AReportAndASettlementHaveTheSameResult(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		for _, params := range []join.StartParams{{ExpectedSteps: 3}, {ExpectedSteps: 3, Quorum: 2}, {ExpectedSteps: 3, FailFast: true}} {
			settling, reporting := f.Start(c, params), f.Start(c, params)
			f.AddSteps(c, settling, "settled", 3)
			reported := f.AddSteps(c, reporting, "reported", 3)
			for i, s := range f.Claim("settled") {
				f.Backdate(settling)
				f.Backdate(reporting)
				if i == 1 {
					f.Settle(suite.Settled(outbox.Fail, s)...)
					f.NoError(c.ReportStepFailed(f.Context(), nil, reporting, reported[i]))
				} else {
					f.Settle(suite.Settled(outbox.Ack, s)...)
					f.NoError(c.ReportStepCompleted(f.Context(), nil, reporting, reported[i]))
				}
				one, other := f.JoinRow(settling), f.JoinRow(reporting)
				f.Equal(one.Updated.Equal(one.Created), other.Updated.Equal(other.Created), "both move the time, or neither")
				one.Created, one.Updated = other.Created, other.Updated
				f.Equal(one, other)
				f.Equal(f.Step(settling, s.ID), f.Step(reporting, reported[i]))
			}
			f.Clear()
		}
	})
}

func TestJoinReportsRefuseWhatIsNoStep(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		id, steps := f.StartWith(c, "s", 1)
		another, _ := f.StartWith(c, "s", 1)
		for name, report := range map[string]func(join.ID, outbox.MessageID) error{
			"completed": func(j join.ID, m outbox.MessageID) error { return c.ReportStepCompleted(f.Context(), nil, j, m) },
			"failed":    func(j join.ID, m outbox.MessageID) error { return c.ReportStepFailed(f.Context(), nil, j, m) },
		} {
			f.ErrorIs(report(join.ID{1}, steps[0]), join.ErrNotFound, name)
			f.ErrorIs(report(another, steps[0]), join.ErrNotAStep, "a step of another join only")
			f.ErrorContains(report(another, steps[0]), another.String())
			f.ErrorIs(report(id, outbox.MessageID{9}), join.ErrNotAStep)
			f.RequireField(report(join.ID{}, steps[0]), "join id")
			f.RequireField(report(id, outbox.MessageID{}), "message id")
		}
		f.Stands(c, id, join.Pending, 0, 0)
		f.Stands(c, another, join.Pending, 0, 0)
	})
}

// A step of AttachByReport ends by nothing else: what becomes of the message here is only its relay.
func TestJoinStepByReportEndsByReportOnly(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		id := f.Start(c, join.StartParams{ExpectedSteps: 3})
		held := []outbox.Claimed{f.ClaimOne("s"), f.ClaimOne("s")}
		elsewhere := outbox.MessageID(base.NewOwnerToken()) // of no outbox
		f.NoError(c.AttachByReport(f.Context(), nil, id, held[0].ID, held[1].ID, elsewhere))
		f.Settle(append(suite.Settled(outbox.Ack, held[0]), suite.Settled(outbox.Fail, held[1])...)...)
		f.Stands(c, id, join.Pending, 0, 0)
		f.NoError(c.ReportStepFailed(f.Context(), nil, id, held[0].ID))
		f.NoError(c.ReportStepCompleted(f.Context(), nil, id, held[1].ID))
		f.NoError(c.ReportStepCompleted(f.Context(), nil, id, elsewhere))
		f.Stands(c, id, join.Failed, 2, 1)
	})
}
