package conformance

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/join"
)

// joinPublisher returns a publisher that attaches what it publishes.
func (f *fixture) joinPublisher(x outbox.Executor, c *join.Coordinator, options ...func(*outbox.PublisherConfig)) *outbox.Publisher {
	f.t.Helper()
	config := outbox.PublisherConfig{Dialect: f.config.Dialect, Schema: f.config.Schema, Table: f.config.Table}
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
	f.t.Helper()
	found := f.rows("{uuid} = '%s'", uuid)
	f.Len(found, 1)
	return found[0].id
}

func TestJoinPublisherAttachesWhatItPublishes(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		one, two := f.start(c, join.StartParams{ExpectedSteps: 2}), f.start(c, join.StartParams{ExpectedSteps: 3})
		p := f.joinPublisher(f.db.DB, c)
		f.NoError(p.Publish("s", stepMessage(f.ctx(), "a", one), stepMessage(f.ctx(), "b", two), message.NewMessage("c", nil),
			stepMessage(f.ctx(), "d", one), stepMessage(f.ctx(), "e", two)))
		f.NoError(p.Publish("s", message.NewMessage("f", nil)), "a message without a join is just published")
		f.Equal(6, f.count())
		pending := join.StepPending
		f.Equal(map[outbox.MessageID]join.StepStatus{f.idOf("a"): pending, f.idOf("d"): pending}, f.steps(one))
		f.Equal(map[outbox.MessageID]join.StepStatus{f.idOf("b"): pending, f.idOf("e"): pending}, f.steps(two))
		f.settle(settled(outbox.Ack, f.claim("s")...)...)
		f.stands(c, one, join.Completed, 2, 0)
		f.stands(c, two, join.Pending, 2, 0)
	})
}

// What cannot be attached is not sent, and of the other messages of the call none is.
func TestJoinPublisherSendsAllOrNothing(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		p := f.joinPublisher(f.db.DB, c)
		good, full, ended := f.start(c, join.StartParams{ExpectedSteps: 5}), f.start(c, join.StartParams{ExpectedSteps: 1}), f.start(c, join.StartParams{Open: true})
		f.NoError(c.Cancel(f.ctx(), nil, ended))
		for _, refused := range []struct {
			id   join.ID
			want error
		}{{full, join.ErrFull}, {ended, join.ErrEnded}, {join.ID{1}, join.ErrNotFound}} {
			err := p.Publish("s", stepMessage(f.ctx(), "a", good), message.NewMessage("b", nil),
				stepMessage(f.ctx(), "c", refused.id), stepMessage(f.ctx(), "d", refused.id))
			f.ErrorIs(err, refused.want)
		}
		f.requireField(p.Publish("s", stepMessage(f.ctx(), "a", join.ID{})), "join id")
		f.Zero(f.count())
		f.Zero(f.joinRow(good).members)
	})
}

func TestJoinPublisherInTheCallersTransaction(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		id, full := f.start(c, join.StartParams{ExpectedSteps: 2}), f.start(c, join.StartParams{ExpectedSteps: 1})
		p := f.joinPublisher(nil, c, func(c *outbox.PublisherConfig) { c.RequireTx = true })
		f.ErrorIs(p.Publish("s", stepMessage(f.ctx(), "x", id)), outbox.ErrTxRequired)
		errUndo := errors.New("undo")
		for _, end := range []error{errUndo, nil} {
			err := outbox.InTx(f.ctx(), f.db.DB, func(ctx context.Context, tx *sql.Tx) error {
				f.NoError(p.Publish("s", stepMessage(ctx, "a", id)))
				f.ErrorIs(p.Publish("s", stepMessage(ctx, "b", full), stepMessage(ctx, "c", full)), join.ErrFull)
				f.NoError(f.joinPublisher(tx, c).Publish("s", stepMessage(f.ctx(), "d", id)), "a publisher of the transaction")
				return end
			})
			f.ErrorIs(err, end)
			if end != nil {
				f.Zero(f.count())
				f.Zero(f.joinRow(id).members)
			}
		}
		f.Equal(2, f.count(), "of a refused call nothing is sent, though the transaction commits")
		f.Equal(map[outbox.MessageID]join.StepStatus{f.idOf("a"): join.StepPending, f.idOf("d"): join.StepPending}, f.steps(id))
	})
}

// The CQRS component gives its context to the messages: the join goes with it.
func TestJoinPublisherUnderCQRS(t *testing.T) {
	type extractCustomers struct{ From string }
	forEach(t, func(t *testing.T, f *fixture) {
		c := f.joins()
		bus, err := cqrs.NewCommandBusWithConfig(f.joinPublisher(f.db.DB, c), cqrs.CommandBusConfig{
			GeneratePublishTopic: func(params cqrs.CommandBusGeneratePublishTopicParams) (string, error) { return "commands", nil },
			Marshaler:            cqrs.JSONMarshaler{},
		})
		f.NoError(err)
		id := f.start(c, join.StartParams{ExpectedSteps: 2})
		ctx := join.With(f.ctx(), id)
		f.NoError(bus.Send(ctx, &extractCustomers{"north"}))
		f.NoError(bus.Send(ctx, &extractCustomers{"south"}))
		f.NoError(bus.Send(f.ctx(), &extractCustomers{"nowhere"}))
		f.Equal(2, f.joinRow(id).members)
		claimed := f.claim("commands")
		f.Len(claimed, 3)
		f.settle(settled(outbox.Ack, claimed...)...)
		f.stands(c, id, join.Completed, 2, 0)
	})
}
