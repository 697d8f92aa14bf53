package eventstore

import (
	"cmp"
	"context"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
)

// Replay publishes a range of events again, in order, through any Watermill publisher: to a broker, or to an outbox. They go to
// topic, or each to its own if that is empty, with their headers and ids. Each has its stream as outbox.HeaderStreamKey, so that
// a broker or an outbox keeps the events of a stream in order, too. Replay returns the position of the last event that was
// published, from which an interrupted Replay goes on.
func (s *Store) Replay(ctx context.Context, publisher message.Publisher, topic string, params ReadAllParams) (last int64, err error) {
	last = params.After
	for e, err := range s.ReadAll(ctx, params) {
		if err != nil {
			return last, err
		}
		msg := e.Message()
		msg.Metadata[outbox.HeaderStreamKey] = e.Stream
		msg.SetContext(ctx)
		if err := publisher.Publish(cmp.Or(topic, e.Topic), msg); err != nil {
			return last, fmt.Errorf("replay the event at position %d: %w", e.Position, err)
		}
		last = e.Position
	}
	return last, nil
}
