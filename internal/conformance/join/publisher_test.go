package join_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/join"
)

// joinPublisher returns a publisher that attaches what it publishes.
func (f *fixture) joinPublisher(x outbox.Executor, c *join.Coordinator, options ...func(*outbox.PublisherConfig)) *outbox.Publisher {
	f.T.Helper()
	config := outbox.PublisherConfig{Dialect: f.Config.Dialect, Schema: f.Config.Schema, Table: f.Config.Table}
	for _, option := range options {
		option(&config)
	}
	p, err := join.NewPublisher(x, config, c, nil)
	f.NoError(err)
	return p
}

// stepMessage is a message that is to become a step of a join.
func stepMessage(ctx context.Context, uuid string, id join.ID) *message.Message {
	msg := message.NewMessage(uuid, []byte("step"))
	msg.SetContext(join.With(ctx, id))
	return msg
}

func (f *fixture) idOf(uuid string) outbox.MessageID {
	f.T.Helper()
	found := f.Rows("{uuid} = '%s'", uuid)
	f.Len(found, 1)
	return found[0].ID
}

func TestJoinPublisherAttachesWhatItPublishes(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		one, two := f.Start(c, join.StartParams{ExpectedSteps: 2}), f.Start(c, join.StartParams{ExpectedSteps: 3})
		p := f.joinPublisher(f.DB.DB, c)
		f.NoError(p.Publish("s", stepMessage(f.Context(), "a", one), stepMessage(f.Context(), "b", two), message.NewMessage("c", nil),
			stepMessage(f.Context(), "d", one), stepMessage(f.Context(), "e", two)))
		f.NoError(p.Publish("s", message.NewMessage("f", nil)), "a message without a join is just published")
		f.Equal(6, f.Count())
		pending := join.StepPending
		f.Equal(map[outbox.MessageID]join.StepStatus{f.idOf("a"): pending, f.idOf("d"): pending}, f.Steps(one))
		f.Equal(map[outbox.MessageID]join.StepStatus{f.idOf("b"): pending, f.idOf("e"): pending}, f.Steps(two))
		f.Settle(suite.Settled(outbox.Ack, f.Claim("s")...)...)
		f.Stands(c, one, join.Completed, 2, 0)
		f.Stands(c, two, join.Pending, 2, 0)
	})
}

// What cannot be attached is not sent, and of the other messages of the call none is.
func TestJoinPublisherSendsAllOrNothing(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		p := f.joinPublisher(f.DB.DB, c)
		good, full, ended := f.Start(c, join.StartParams{ExpectedSteps: 5}), f.Start(c, join.StartParams{ExpectedSteps: 1}), f.Start(c, join.StartParams{Open: true})
		f.NoError(c.Cancel(f.Context(), nil, ended))
		for _, refused := range []struct {
			id   join.ID
			want error
		}{{full, join.ErrFull}, {ended, join.ErrEnded}, {join.ID{1}, join.ErrNotFound}} {
			err := p.Publish("s", stepMessage(f.Context(), "a", good), message.NewMessage("b", nil),
				stepMessage(f.Context(), "c", refused.id), stepMessage(f.Context(), "d", refused.id))
			f.ErrorIs(err, refused.want)
		}
		f.RequireField(p.Publish("s", stepMessage(f.Context(), "a", join.ID{})), "join id")
		f.Zero(f.Count())
		f.Zero(f.JoinRow(good).Members)
	})
}

func TestJoinPublisherInTheCallersTransaction(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		id, full := f.Start(c, join.StartParams{ExpectedSteps: 2}), f.Start(c, join.StartParams{ExpectedSteps: 1})
		p := f.joinPublisher(nil, c, func(c *outbox.PublisherConfig) { c.RequireTx = true })
		f.ErrorIs(p.Publish("s", stepMessage(f.Context(), "x", id)), outbox.ErrTxRequired)
		errUndo := errors.New("undo")
		for _, end := range []error{errUndo, nil} {
			err := outbox.InTx(f.Context(), f.DB.DB, func(ctx context.Context, tx *sql.Tx) error {
				f.NoError(p.Publish("s", stepMessage(ctx, "a", id)))
				f.ErrorIs(p.Publish("s", stepMessage(ctx, "b", full), stepMessage(ctx, "c", full)), join.ErrFull)
				f.NoError(f.joinPublisher(tx, c).Publish("s", stepMessage(f.Context(), "d", id)), "a publisher of the transaction")
				return end
			})
			f.ErrorIs(err, end)
			if end != nil {
				f.Zero(f.Count())
				f.Zero(f.JoinRow(id).Members)
			}
		}
		f.Equal(2, f.Count(), "of a refused call nothing is sent, though the transaction commits")
		f.Equal(map[outbox.MessageID]join.StepStatus{f.idOf("a"): join.StepPending, f.idOf("d"): join.StepPending}, f.Steps(id))
	})
}

// The CQRS component gives its context to the messages: the join goes with it.
func TestJoinPublisherUnderCQRS(t *testing.T) {
	type extractCustomers struct{ From string }
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.Joins()
		bus, err := cqrs.NewCommandBusWithConfig(f.joinPublisher(f.DB.DB, c), cqrs.CommandBusConfig{
			GeneratePublishTopic: func(params cqrs.CommandBusGeneratePublishTopicParams) (string, error) { return "commands", nil },
			Marshaler:            cqrs.JSONMarshaler{},
		})
		f.NoError(err)
		id := f.Start(c, join.StartParams{ExpectedSteps: 2})
		ctx := join.With(f.Context(), id)
		f.NoError(bus.Send(ctx, &extractCustomers{"north"}))
		f.NoError(bus.Send(ctx, &extractCustomers{"south"}))
		f.NoError(bus.Send(f.Context(), &extractCustomers{"nowhere"}))
		f.Equal(2, f.JoinRow(id).Members)
		claimed := f.Claim("commands")
		f.Len(claimed, 3)
		f.Settle(suite.Settled(outbox.Ack, claimed...)...)
		f.Stands(c, id, join.Completed, 2, 0)
	})
}
