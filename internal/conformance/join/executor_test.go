package join_test

import (
	"context"
	"database/sql"
	"testing"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/faults"
	"github.com/incursa/watermill-outbox/join"
)

// everyCall makes each call that takes an executor, without one.
func everyCall(ctx context.Context, f *fixture, c *join.Coordinator) {
	id, err := c.Start(ctx, nil, join.StartParams{Open: true})
	f.NoError(err)
	named, err := f.Outbox.NewID()
	f.NoError(err)
	_, err = c.Start(ctx, nil, join.StartParams{ID: join.ID(named), ExpectedSteps: 1})
	f.NoError(err)
	steps, err := c.Enqueue(ctx, nil, id, outbox.Message{Topic: "s"})
	f.NoError(err)
	f.NoError(c.Attach(ctx, nil, join.ID(named), steps...))
	f.NoError(c.AttachByReport(ctx, nil, id, outbox.MessageID{1}, outbox.MessageID{2}))
	f.NoError(c.AttachJoin(ctx, nil, id, join.ID(named)))
	f.NoError(c.ReportStepCompleted(ctx, nil, id, outbox.MessageID{1}))
	f.NoError(c.ReportStepFailed(ctx, nil, id, outbox.MessageID{2}))
	_, err = c.EnqueueWait(ctx, nil, join.Wait{Join: id, OnComplete: join.Continuation{Topic: "next"}})
	f.NoError(err)
	f.NoError(c.Seal(ctx, nil, id))
	read, err := c.Get(ctx, nil, id)
	f.NoError(err)
	f.Equal(1, read.CompletedSteps)
	list, err := c.Steps(ctx, nil, id, outbox.MessageID{}, 10)
	f.NoError(err)
	f.Len(list, 4)
	recent, err := c.Recent(ctx, nil, join.ID{}, 10)
	f.NoError(err)
	f.Len(recent, 2)
	f.NoError(c.Cancel(ctx, nil, id))
}

// Without an executor a call is part of the transaction that its context carries, and not beside it.
func TestTrap_WithoutAnExecutorACallStaysInTheTransactionOfItsContext(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		f.ErrorIs(outbox.InTx(f.Context(), f.DB.DB, func(ctx context.Context, _ *sql.Tx) error {
			everyCall(ctx, f, c)
			return suite.ErrBoom
		}), suite.ErrBoom)
		f.Zero(f.JoinCount() + f.Count())

		tx, err := f.DB.BeginTx(f.Context(), nil)
		f.NoError(err)
		everyCall(outbox.WithTx(f.Context(), tx), f, c)
		f.NoError(tx.Rollback())
		f.Zero(f.JoinCount() + f.Count())

		everyCall(f.Context(), f, c) // in transactions of their own
		f.Equal(2, f.JoinCount())
	})
}

// A transaction of another database is no place for these tables.
func TestTrap_TheTransactionOfTheContextIsOfAnotherDatabase(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c, other := f.Joins(), faults.Open(t, f.DB, faults.Hooks{})
		f.NoError(outbox.InTx(f.Context(), other, func(ctx context.Context, tx *sql.Tx) error {
			_, err := c.Start(ctx, nil, join.StartParams{ExpectedSteps: 1})
			f.RequireField(err, "ctx")
			_, err = c.Enqueue(ctx, nil, join.ID{1}, outbox.Message{Topic: "s"})
			f.RequireField(err, "ctx")
			f.RequireField(c.Cancel(ctx, nil, join.ID{1}), "ctx")
			_, err = c.Get(ctx, nil, join.ID{1})
			f.RequireField(err, "ctx")
			_, err = c.Start(ctx, tx, join.StartParams{ExpectedSteps: 1}) // you know better
			return err
		}))
		f.Equal(1, f.JoinCount())
	})
}

// The report of a middleware has a transaction of its own, whatever the handler ran in.
func TestTrap_AReportOutlivesTheTransactionOfTheHandler(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		id := f.Start(c, join.StartParams{ExpectedSteps: 1})
		step := outbox.MessageID{7}
		f.NoError(c.AttachByReport(f.Context(), nil, id, step))
		msg := relayed(step.String())
		msg.Metadata.Set(join.HeaderStepOf, id.String())
		tx, err := f.DB.BeginTx(f.Context(), nil)
		f.NoError(err)
		f.NoError(tx.Rollback())
		msg.SetContext(outbox.WithTx(f.Context(), tx))
		_, err = reporting(c, nil)(msg)
		f.NoError(err)
		f.Stands(c, id, join.Completed, 1, 0)
	})
}
