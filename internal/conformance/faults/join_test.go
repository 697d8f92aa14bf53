package faults_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/join"
)

// Joins for the test under faults.

// A faultJoin is a join as its caller knows it.
type faultJoin struct {
	id        join.ID
	known     outcomeKnown
	err       error
	steps     []*faultStep
	cancelled bool // somebody has tried to
}

// A faultStep is one of its steps, as its caller knows it.
type faultStep struct {
	id       outbox.MessageID
	known    outcomeKnown
	byReport bool
}

func (b *faultBook) addJoin(j *faultJoin) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.joins = append(b.joins, j)
}

// joinPieceByPiece makes a join by calls of their own, each of which may or may not be done.
func (op *faultOperation) joinPieceByPiece(ctx context.Context) {
	j := op.startJoin(ctx, nil, op.random.IntN(2) == 0)
	if j.known == notDone {
		return
	}
	wait := func() {
		thing := &faultThing{name: op.name("continuation"), topic: "next", queued: true}
		op.book.expect(thing)
		_, err := op.joins.EnqueueWait(ctx, nil, waitFor(j.id, thing))
		op.book.answered(op.called("EnqueueWait", err), err, thing)
	}
	early := op.random.IntN(2) == 0
	if early {
		wait()
	}
	one(op, (*faultOperation).enqueueSteps, (*faultOperation).publishSteps, (*faultOperation).attachSteps, (*faultOperation).reportSteps)(op, ctx, j)
	if !early || op.random.IntN(3) == 0 {
		wait()
	}
	op.called("Seal", op.joins.Seal(ctx, nil, j.id))
	if op.random.IntN(8) == 0 {
		j.cancelled = true
		op.called("Cancel", op.joins.Cancel(ctx, nil, j.id))
	}
	op.lookAtJoin(ctx, j)
}

func waitFor(id join.ID, thing *faultThing) join.Wait {
	next := join.Continuation{Topic: thing.topic, Payload: []byte(thing.name)}
	return join.Wait{Join: id, OnComplete: next, OnFail: &next}
}

const stepsUnderFaults = 2

func (op *faultOperation) startJoin(ctx context.Context, x outbox.Executor, open bool) *faultJoin {
	id, err := op.Outbox.NewID()
	op.NoError(err)
	j := &faultJoin{id: join.ID(id)}
	params := join.StartParams{ID: j.id, GroupingKey: fmt.Sprint("group ", op.index), Open: open}
	if !open {
		params.ExpectedSteps = stepsUnderFaults
	}
	op.book.addJoin(j)
	_, j.err = op.joins.Start(ctx, x, params)
	j.known = op.called("Start", j.err)
	return j
}

// newSteps are messages that will be steps.
func (op *faultOperation) newSteps(j *faultJoin) []*faultThing {
	topic := one(op, "step", "step", "failing")
	var things []*faultThing
	for range stepsUnderFaults {
		id, err := op.Outbox.NewID()
		op.NoError(err)
		things = append(things, &faultThing{name: op.name("step"), topic: topic, queued: true, id: id})
		j.steps = append(j.steps, &faultStep{id: id})
	}
	return things
}

func (j *faultJoin) attached(known outcomeKnown) {
	for _, step := range j.steps {
		step.known = known
	}
}

func (op *faultOperation) enqueueSteps(ctx context.Context, j *faultJoin) {
	things := op.newSteps(j)
	op.book.expect(things...)
	_, err := op.joins.Enqueue(ctx, nil, j.id, messagesOf(things)...)
	known := op.called("Enqueue into a join", err)
	op.book.answered(known, err, things...)
	j.attached(known)
}

// publishSteps knows the steps by the number of them, because a Publisher gives them their ids.
func (op *faultOperation) publishSteps(ctx context.Context, j *faultJoin) {
	things := op.newSteps(j)
	j.steps = nil
	for _, thing := range things {
		thing.id = outbox.MessageID{}
	}
	op.book.expect(things...)
	err := op.publishOn(join.With(ctx, j.id), op.toJoin, things...)
	op.book.answered(op.called("Publish into a join", err), err, things...)
}

func (op *faultOperation) attachSteps(ctx context.Context, j *faultJoin) {
	things := op.newSteps(j)
	op.book.expect(things...)
	_, err := op.queue.Enqueue(ctx, op.pool, messagesOf(things)...)
	op.book.answered(op.called("Enqueue", err), err, things...)
	err = op.joins.Attach(ctx, nil, j.id, things[0].id, things[1].id)
	j.attached(op.called("Attach", err))
}

func (op *faultOperation) reportSteps(ctx context.Context, j *faultJoin) {
	var ids []outbox.MessageID
	for range stepsUnderFaults {
		id, err := op.Outbox.NewID()
		op.NoError(err)
		ids = append(ids, id)
		j.steps = append(j.steps, &faultStep{id: id, byReport: true})
	}
	j.attached(op.called("AttachByReport", op.joins.AttachByReport(ctx, nil, j.id, ids...)))
	op.called("ReportStepCompleted", op.joins.ReportStepCompleted(ctx, nil, j.id, ids[0]))
	op.called("ReportStepFailed", op.joins.ReportStepFailed(ctx, nil, j.id, ids[1]))
}

// joinAtOnce makes a join, or one of two levels, in one transaction.
func (op *faultOperation) joinAtOnce(ctx context.Context) {
	continuation := &faultThing{name: op.name("continuation"), topic: "next", queued: true}
	op.book.expect(continuation)
	var joins []*faultJoin
	var steps []*faultThing
	nested := op.random.IntN(3) == 0
	err := outbox.InTx(ctx, op.pool, func(ctx context.Context, tx *sql.Tx) error {
		j := op.startJoin(ctx, tx, false)
		joins = append(joins, j)
		things := op.newSteps(j)
		if nested {
			child := op.startJoin(ctx, tx, false)
			joins = append(joins, child)
			child.steps, j.steps = j.steps, append(j.steps[:0:0], &faultStep{id: outbox.MessageID(child.id), byReport: true})
			if err := errors.Join(child.err, j.err); err != nil {
				return err
			}
			if err := op.joins.AttachJoin(ctx, tx, j.id, child.id); err != nil {
				return err
			}
			j = child
		}
		op.book.expect(things...)
		steps = things
		if j.err != nil {
			return j.err
		}
		if _, err := op.joins.Enqueue(ctx, tx, j.id, messagesOf(things)...); err != nil {
			return err
		}
		_, err := op.joins.EnqueueWait(ctx, tx, waitFor(joins[0].id, continuation))
		return err
	})
	known := op.called("InTx with a join", err)
	op.book.answered(known, err, append(steps, continuation)...)
	for _, j := range joins {
		j.known, j.err = known, err
		j.attached(known)
	}
}

func (op *faultOperation) lookAtJoin(ctx context.Context, j *faultJoin) {
	read, err := op.joins.Get(ctx, nil, j.id)
	op.called("Get of a join", err)
	if err == nil && (read.CompletedSteps < 0 || read.CompletedSteps+read.FailedSteps > stepsUnderFaults) {
		op.book.mistake("a join counts %+v", read)
	}
	if errors.Is(err, join.ErrNotFound) && j.known == isDone {
		op.book.mistake("a join that was started is not found")
	}
	_, err = op.joins.Steps(ctx, nil, j.id, outbox.MessageID{}, 10)
	op.called("Steps", err)
	found, err := op.joins.ByGroup(ctx, nil, fmt.Sprint("group ", op.index), join.ID{}, 10)
	op.called("ByGroup", err)
	if err == nil && j.known == isDone && len(found) != 1 {
		op.book.mistake("%d joins are found by the key of one", len(found))
	}
}

// endJoins ends those that cannot end by themselves, because some of their steps were not added. It answers with how many
// are still under way.
func (r *faultRun) endJoins() (left int) {
	for _, j := range r.book.joins {
		read, err := r.healthyJoins.Get(r.Context(), nil, j.id)
		if errors.Is(err, join.ErrNotFound) {
			continue
		}
		r.NoError(err)
		if read.Status != join.Pending {
			continue
		}
		left++
		steps, err := r.healthyJoins.Steps(r.Context(), nil, j.id, outbox.MessageID{}, 100)
		r.NoError(err)
		switch {
		case read.Open:
			r.NoError(ignoring(r.healthyJoins.Seal(r.Context(), nil, j.id), join.ErrEnded))
		case len(steps) < read.ExpectedSteps:
			j.cancelled = true
			r.NoError(ignoring(r.healthyJoins.Cancel(r.Context(), nil, j.id), join.ErrEnded))
		}
		for _, step := range j.steps {
			if step.byReport && len(j.steps) == stepsUnderFaults {
				r.NoError(ignoring(r.healthyJoins.ReportStepCompleted(r.Context(), nil, j.id, step.id), join.ErrNotAStep))
			}
		}
	}
	return left
}

func ignoring(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}

// checkJoins holds the joins against what their callers were told.
func (r *faultRun) checkJoins() {
	for _, j := range r.book.joins {
		read, err := r.healthyJoins.Get(r.Context(), nil, j.id)
		there := err == nil
		if !there {
			r.ErrorIs(err, join.ErrNotFound)
		}
		switch {
		case j.known == isDone && !there:
			r.book.lose("the join %v", j.id)
		case j.known == notDone && there:
			r.book.mistake("the join %v was not started, and is there: %v", j.id, j.err)
		}
		if there {
			r.checkSteps(j, read)
		}
	}
}

func (r *faultRun) checkSteps(j *faultJoin, read join.Join) {
	steps, err := r.healthyJoins.Steps(r.Context(), nil, j.id, outbox.MessageID{}, 100)
	r.NoError(err)
	counted := map[join.StepStatus]int{}
	there := map[outbox.MessageID]bool{}
	for _, step := range steps {
		counted[step.Status]++
		there[step.MessageID] = true
	}
	for _, step := range j.steps {
		switch {
		case step.known == isDone && !there[step.id]:
			r.book.lose("the step %v of the join %v", step.id, j.id)
		case step.known == notDone && there[step.id]:
			r.book.mistake("%v was not attached to the join %v, and is its step", step.id, j.id)
		}
	}
	if read.Status == join.Cancelled {
		if !j.cancelled {
			r.book.mistake("the join %v was cancelled by nobody", j.id)
		}
		return // its steps went on
	}
	if read.CompletedSteps != counted[join.StepCompleted] || read.FailedSteps != counted[join.StepFailed] {
		r.book.mistake("the join %v counts %d completed and %d failed, and has %v", j.id, read.CompletedSteps, read.FailedSteps, counted)
	}
}
