package join

import (
	"context"
	"slices"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/field"
	"github.com/incursa/watermill-outbox/internal/seam"
)

type joinKey struct{}

// With returns a context for messages: those that carry it become steps of the join when a Publisher made by NewPublisher
// publishes them.
func With(ctx context.Context, id ID) context.Context {
	return context.WithValue(ctx, joinKey{}, id)
}

// NewPublisher returns an outbox.Publisher that also makes messages whose context comes from With steps of their join, in
// the transaction that inserts them, so that none can end before it is a step. Messages without a join are just published; a
// call with a step is written by itself, whatever PublisherConfig.Flush says.
// It returns what outbox.NewPublisher returns, and an *outbox.FieldError without a coordinator or with LogOnly. Publish also
// returns what Attach returns.
func NewPublisher(x outbox.Executor, config outbox.PublisherConfig, c *Coordinator, logger watermill.LoggerAdapter) (*outbox.Publisher, error) {
	if c == nil {
		return nil, field.Bad("coordinator", "is nil; pass what NewCoordinator returns")
	}
	if config.Log == outbox.LogOnly {
		return nil, field.Bad("PublisherConfig.Log", "is LogOnly: such messages never end, and cannot be steps; use QueueAndLog, or outbox.NewPublisher")
	}
	p, err := outbox.NewPublisher(x, config, logger)
	if err != nil {
		return nil, err
	}
	seam.Publisher(p).Beside(anySteps, c.attachPublished)
	return p, nil
}

func anySteps(messages []*message.Message) bool {
	return slices.ContainsFunc(messages, func(msg *message.Message) bool {
		_, is := msg.Context().Value(joinKey{}).(ID)
		return is
	})
}

// attachPublished attaches what was just inserted, with one call for each join.
func (c *Coordinator) attachPublished(ctx context.Context, x outbox.Executor, messages []*message.Message, ids []outbox.MessageID) error {
	var order []ID
	steps := map[ID][]outbox.MessageID{}
	for i, msg := range messages {
		id, ok := msg.Context().Value(joinKey{}).(ID)
		if !ok {
			continue
		}
		if _, known := steps[id]; !known {
			order = append(order, id)
		}
		steps[id] = append(steps[id], ids[i])
	}
	for _, id := range order {
		if err := c.attach(ctx, x, id, steps[id], attachArg{Fresh: true}); err != nil {
			return err
		}
	}
	return nil
}
