package outbox

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/incursa/watermill-outbox/internal/base"
)

// eventStreams returns the messages by the event stream that each belongs to, or nothing if none is an event.
func (p *Publisher) eventStreams(topic string, messages []*message.Message) map[string][]int {
	if p.config.EventStream == nil {
		return nil
	}
	streams := map[string][]int{}
	for i, msg := range messages {
		stream := p.config.EventStream(topic, msg)
		streams[stream] = append(streams[stream], i)
	}
	if len(streams[""]) == len(messages) {
		return nil
	}
	return streams
}

// enqueue enqueues messages, and stores those that are events. The streams are locked in order of their names. It may be
// called again with the same streams, after a lost conflict.
func (p *Publisher) enqueue(ctx context.Context, x Executor, rows []Message, streams map[string][]int) ([]MessageID, error) {
	if streams == nil {
		return p.outbox.Enqueue(ctx, x, rows...)
	}
	plain := streams[""]
	ids := make([]MessageID, len(rows))
	err := p.outbox.inTx(ctx, x, func(ctx context.Context, x Executor) error {
		if len(plain) > 0 {
			some, err := p.outbox.Enqueue(ctx, x, pick(rows, plain)...)
			if err != nil {
				return err
			}
			placeIDs(ids, plain, some)
		}
		for _, stream := range slices.Sorted(maps.Keys(streams)) {
			if stream == "" {
				continue
			}
			_, some, err := p.outbox.appendEvents(ctx, x, stream, base.AnyVersion, pick(rows, streams[stream]))
			if err != nil {
				return fmt.Errorf("store events: %w", err)
			}
			placeIDs(ids, streams[stream], some)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return ids, nil
}

func pick(rows []Message, at []int) []Message {
	picked := make([]Message, len(at))
	for i, n := range at {
		picked[i] = rows[n]
	}
	return picked
}

func placeIDs(ids []MessageID, at []int, some []MessageID) {
	for i, n := range at {
		ids[n] = some[i]
	}
}
