package conformance

import (
	"testing"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/join"
)

func TestJOIN020_OBX079_AReportedCompletionCounts(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		id, steps := f.startWith(c, "s", 2)
		f.NoError(c.ReportStepCompleted(f.ctx(), nil, id, steps[0]))
		f.stands(c, id, join.Pending, 1, 0)
		f.Equal(map[outbox.MessageID]join.StepStatus{steps[0]: join.StepCompleted, steps[1]: join.StepPending}, f.steps(id))
		f.NoError(c.ReportStepCompleted(f.ctx(), f.db, id, steps[1]))
		f.stands(c, id, join.Completed, 2, 0)
		f.Equal(int(outbox.Ready), f.row(steps[0]).status, "the message itself is as it was")
	})
}

func TestJOIN021_OBX081_AReportedFailureCounts(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		id, steps := f.startWith(c, "s", 2)
		f.NoError(c.ReportStepFailed(f.ctx(), nil, id, steps[0]))
		f.stands(c, id, join.Pending, 0, 1)
		f.Equal(map[outbox.MessageID]join.StepStatus{steps[0]: join.StepFailed, steps[1]: join.StepPending}, f.steps(id))
		f.NoError(c.ReportStepCompleted(f.ctx(), nil, id, steps[1]))
		f.stands(c, id, join.Failed, 1, 1)
	})
}

func TestJOIN022_OBX080_082_AReportRepeatedChangesNothing(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		id, steps := f.startWith(c, "s", 4)
		held := f.claim("s")
		f.NoError(c.ReportStepCompleted(f.ctx(), nil, id, steps[0]))
		f.NoError(c.ReportStepFailed(f.ctx(), nil, id, steps[1]))
		f.settle(settled(outbox.Ack, held[2])...)
		f.backdate(id)
		before, stepsBefore := f.joinRow(id), f.steps(id)
		for range 2 {
			for _, step := range steps[:3] {
				f.NoError(c.ReportStepCompleted(f.ctx(), nil, id, step), "the same, or the other")
				f.NoError(c.ReportStepFailed(f.ctx(), nil, id, step))
			}
		}
		f.Equal(before, f.joinRow(id), "not even the time")
		f.Equal(stepsBefore, f.steps(id))
		f.settle(settled(outbox.Ack, held[1])...)
		f.settle(settled(outbox.Fail, held[0])...)
		f.Equal(before, f.joinRow(id), "nor does the message's own end count again")
		f.stands(c, id, join.Pending, 2, 1)
	})
}

func TestJOIN024_AReportIsOneTransaction(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		id, steps := f.startWith(c, "s", 2)
		for table, condition := range f.refusals() {
			allow := f.refuseCounting(table, condition)
			f.Error(c.ReportStepCompleted(f.ctx(), nil, id, steps[0]), "the %s refuses", table)
			f.Error(c.ReportStepFailed(f.ctx(), nil, id, steps[1]))
			f.stands(c, id, join.Pending, 0, 0)
			f.Equal(map[outbox.MessageID]join.StepStatus{steps[0]: join.StepPending, steps[1]: join.StepPending}, f.steps(id))
			allow()
		}
		f.NoError(c.ReportStepCompleted(f.ctx(), nil, id, steps[0]))
		f.NoError(c.ReportStepCompleted(f.ctx(), nil, id, steps[1]))
		f.stands(c, id, join.Completed, 2, 0)
	})
}

// The same ends, one by settling and one by hand, leave the same joins behind.
func TestJOIN034_AReportAndASettlementHaveTheSameResult(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		for _, params := range []join.StartParams{{ExpectedSteps: 3}, {ExpectedSteps: 3, Quorum: 2}, {ExpectedSteps: 3, FailFast: true}} {
			settling, reporting := f.start(c, params), f.start(c, params)
			f.addSteps(c, settling, "settled", 3)
			reported := f.addSteps(c, reporting, "reported", 3)
			for i, s := range f.claim("settled") {
				f.backdate(settling)
				f.backdate(reporting)
				if i == 1 {
					f.settle(settled(outbox.Fail, s)...)
					f.NoError(c.ReportStepFailed(f.ctx(), nil, reporting, reported[i]))
				} else {
					f.settle(settled(outbox.Ack, s)...)
					f.NoError(c.ReportStepCompleted(f.ctx(), nil, reporting, reported[i]))
				}
				one, other := f.joinRow(settling), f.joinRow(reporting)
				f.Equal(one.updated.Equal(one.created), other.updated.Equal(other.created), "both move the time, or neither")
				one.created, one.updated = other.created, other.updated
				f.Equal(one, other)
				f.Equal(f.step(settling, s.ID), f.step(reporting, reported[i]))
			}
			f.clear()
		}
	})
}

func TestJoinReportsRefuseWhatIsNoStep(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		id, steps := f.startWith(c, "s", 1)
		another, _ := f.startWith(c, "s", 1)
		for name, report := range map[string]func(join.ID, outbox.MessageID) error{
			"completed": func(j join.ID, m outbox.MessageID) error { return c.ReportStepCompleted(f.ctx(), nil, j, m) },
			"failed":    func(j join.ID, m outbox.MessageID) error { return c.ReportStepFailed(f.ctx(), nil, j, m) },
		} {
			f.ErrorIs(report(join.ID{1}, steps[0]), join.ErrNotFound, name)
			f.ErrorIs(report(another, steps[0]), join.ErrNotAStep, "a step of another join only")
			f.ErrorContains(report(another, steps[0]), another.String())
			f.ErrorIs(report(id, outbox.MessageID{9}), join.ErrNotAStep)
			f.requireField(report(join.ID{}, steps[0]), "join id")
			f.requireField(report(id, outbox.MessageID{}), "message id")
		}
		f.stands(c, id, join.Pending, 0, 0)
		f.stands(c, another, join.Pending, 0, 0)
	})
}

// A step of AttachByReport ends by nothing else: what becomes of the message here is only its relay.
func TestJoinStepByReportEndsByReportOnly(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		id := f.start(c, join.StartParams{ExpectedSteps: 3})
		held := []outbox.Claimed{f.claimOne("s"), f.claimOne("s")}
		elsewhere := outbox.MessageID(base.NewOwnerToken()) // of no outbox
		f.NoError(c.AttachByReport(f.ctx(), nil, id, held[0].ID, held[1].ID, elsewhere))
		f.settle(append(settled(outbox.Ack, held[0]), settled(outbox.Fail, held[1])...)...)
		f.stands(c, id, join.Pending, 0, 0)
		f.NoError(c.ReportStepFailed(f.ctx(), nil, id, held[0].ID))
		f.NoError(c.ReportStepCompleted(f.ctx(), nil, id, held[1].ID))
		f.NoError(c.ReportStepCompleted(f.ctx(), nil, id, elsewhere))
		f.stands(c, id, join.Failed, 2, 1)
	})
}
