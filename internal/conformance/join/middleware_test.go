package join_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/faults"
	"github.com/incursa/watermill-outbox/internal/limits"
	"github.com/incursa/watermill-outbox/join"
)

// reporting is a handler with the middleware around it, which returns err.
func reporting(c *join.Coordinator, err error) message.HandlerFunc {
	return join.Middleware(c)(func(msg *message.Message) ([]*message.Message, error) {
		return []*message.Message{msg}, err
	})
}

// relayed is a message as a broker delivers it.
func relayed(header string) *message.Message {
	msg := message.NewMessage("relayed", nil)
	if header != "" {
		msg.Metadata.Set(outbox.HeaderMessageID, header)
	}
	return msg
}

func TestJoinMiddlewareReportsTheStepInAllItsJoins(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		first, second, unrelated := f.Start(c, join.StartParams{ExpectedSteps: 3}), f.Start(c, join.StartParams{ExpectedSteps: 2}), f.Start(c, join.StartParams{ExpectedSteps: 1})
		good, bad := outbox.MessageID(base.NewOwnerToken()), outbox.MessageID(base.NewOwnerToken())
		f.NoError(c.AttachByReport(f.Context(), nil, first, good, bad))
		f.NoError(c.AttachByReport(f.Context(), nil, second, good, bad))
		f.NoError(c.AttachByReport(f.Context(), nil, unrelated, outbox.MessageID{1}))

		// An ordinary error is followed by another attempt, and so it is no end.
		_, err := reporting(c, suite.ErrBoom)(relayed(good.String()))
		f.Equal(suite.ErrBoom, err)
		f.Stands(c, first, join.Pending, 0, 0)

		for range 2 { // a broker delivers at least once
			produced, err := reporting(c, nil)(relayed(good.String()))
			f.NoError(err)
			f.Len(produced, 1, "what the handler returns goes on")
			f.Stands(c, first, join.Pending, 1, 0)
			f.Stands(c, second, join.Pending, 1, 0)
		}
		produced, err := reporting(c, outbox.Permanent(suite.ErrBoom))(relayed(bad.String()))
		f.ErrorIs(err, suite.ErrBoom)
		f.True(outbox.IsPermanent(err))
		f.Len(produced, 1)
		f.Stands(c, first, join.Pending, 1, 1)
		f.Stands(c, second, join.Failed, 1, 1)
		f.Stands(c, unrelated, join.Pending, 0, 0)
	})
}

func TestJoinMiddlewareLetsOthersPass(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		id, _ := f.StartWith(c, "s", 1)
		for _, header := range []string{"", outbox.MessageID(base.NewOwnerToken()).String()} {
			for _, want := range []error{nil, suite.ErrBoom, outbox.Permanent(suite.ErrBoom)} {
				produced, err := reporting(c, want)(relayed(header))
				f.Equal(want, err)
				f.Len(produced, 1)
			}
		}
		called := false
		_, err := join.Middleware(c)(func(*message.Message) ([]*message.Message, error) {
			called = true
			return nil, nil
		})(relayed("not an id"))
		f.True(outbox.IsPermanent(err), "no retry mends it: %v", err)
		f.ErrorContains(err, outbox.HeaderMessageID)
		f.False(called)
		f.Stands(c, id, join.Pending, 0, 0)
	})
}

// The report is written although the handler has used up its time, and if it cannot be, the message is handled again.
func TestJoinMiddlewareReportsWhenTheHandlersTimeIsUp(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		step := outbox.MessageID(base.NewOwnerToken())
		id := f.Start(c, join.StartParams{ExpectedSteps: 1})
		f.NoError(c.AttachByReport(f.Context(), nil, id, step))

		boom := errors.New("the database is away")
		away := faults.Open(t, f.DB, faults.Hooks{Before: func(context.Context, faults.Statement) error { return boom }})
		broken, err := join.NewCoordinator(away, join.Config{Dialect: f.Config.Dialect, Schema: f.Config.Schema}, nil)
		f.NoError(err)
		for _, ended := range []error{nil, outbox.Permanent(suite.ErrBoom)} {
			_, err = reporting(broken, ended)(relayed(step.String()))
			f.ErrorIs(err, boom)
			f.False(outbox.IsPermanent(err), "it has to come again")
		}
		f.Stands(c, id, join.Pending, 0, 0)

		msg := relayed(step.String())
		ctx, cancel := context.WithCancel(f.Context())
		cancel()
		msg.SetContext(ctx)
		_, err = reporting(c, nil)(msg)
		f.NoError(err)
		f.Stands(c, id, join.Completed, 1, 0)
	})
}

// A half-open connection holds up a handler that has no time limit of its own, but not for ever.
func TestTrap_AReportHasATimeLimit(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c, step := f.Joins(), outbox.MessageID(base.NewOwnerToken())
		id := f.Start(c, join.StartParams{ExpectedSteps: 1})
		f.NoError(c.AttachByReport(f.Context(), nil, id, step))
		var sent, unlimited atomic.Int32
		pool := faults.Open(t, f.DB, faults.Hooks{Before: func(ctx context.Context, s faults.Statement) error {
			if s.Text == faults.Commit || s.Text == faults.Rollback {
				return nil
			}
			sent.Add(1)
			if until, limited := ctx.Deadline(); !limited || time.Until(until) > limits.Reporting {
				unlimited.Add(1)
			}
			return nil
		}})
		limited, err := join.NewCoordinator(pool, join.Config{Dialect: f.Config.Dialect, Schema: f.Config.Schema}, nil)
		f.NoError(err)
		msg := relayed(step.String())
		msg.Metadata.Set(join.HeaderStepOf, id.String())
		_, err = reporting(limited, nil)(msg)
		f.NoError(err)
		f.Stands(c, id, join.Completed, 1, 0)
		f.Positive(sent.Load())
		f.Zero(unlimited.Load(), "statements that may wait for ever")
	})
}

// On a subscriber of the outbox itself, the delivery names the message.
func TestJoinMiddlewareKnowsADelivery(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		messages := f.Subscribe(f.Subscriber(), "s")
		step := f.EnqueueN("s", 1)[0]
		id := f.Start(c, join.StartParams{ExpectedSteps: 1})
		f.NoError(c.AttachByReport(f.Context(), nil, id, step))
		msg := f.Receive(messages)
		_, err := reporting(c, nil)(msg)
		f.NoError(err)
		f.Stands(c, id, join.Completed, 1, 0)
		msg.Ack()
		f.Becomes(step, outbox.Done)
	})
}

// A step that is reported before it was attached is not forgotten: its message comes again.
func TestTrap_AReportBeforeItsStep(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		id := f.Start(c, join.StartParams{ExpectedSteps: 1})
		step := outbox.MessageID(base.NewOwnerToken())
		msg := relayed(step.String())
		msg.Metadata.Set(join.HeaderStepOf, id.String())
		_, err := reporting(c, nil)(msg)
		f.ErrorIs(err, join.ErrNotAStep)
		f.NoError(c.AttachByReport(f.Context(), nil, id, step))
		_, err = reporting(c, nil)(msg)
		f.NoError(err)
		f.Stands(c, id, join.Completed, 1, 0)
		msg.Metadata.Set(join.HeaderStepOf, "no id")
		_, err = reporting(c, nil)(msg)
		f.True(outbox.IsPermanent(err))
	})
}
