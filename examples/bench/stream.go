package main

import (
	"context"
	"fmt"

	outbox "github.com/incursa/watermill-outbox"
)

// streaming measures draining of messages that are in so many ordered streams. What is beside it is the product, too: the same
// messages without keys.
type streaming struct {
	messages int
	streams  []int
}

func (s streaming) measure(ctx context.Context, b *bench) (results []result, err error) {
	d := draining{messages: b.count(s.messages), inFlight: 1000}
	for _, streams := range s.streams {
		prepare := b.clear
		unordered, ordered, err := b.compare(ctx, prepare, s.side(b, d, 0), s.side(b, d, min(streams, d.messages)))
		if err != nil {
			return nil, err
		}
		r := perSecond(ordered[0], unordered[0])
		r.MaxInFlight, r.Streams = d.inFlight, streams
		results = append(results, r)
	}
	return results, b.clear(ctx)
}

// side publishes the messages, in turn to each of the streams, and drains them.
func (s streaming) side(b *bench, d draining, streams int) side {
	return func(ctx context.Context) ([]float64, error) {
		o, err := outbox.New(b.DB, outbox.Config{Dialect: b.dialect, Table: b.tableName()}, nil)
		if err != nil {
			return nil, err
		}
		batch := make([]outbox.Message, 0, 1000)
		for i := range d.messages {
			m := outbox.Message{Topic: topicName(0), Payload: b.payload}
			if streams > 0 {
				m.StreamKey = fmt.Sprint(i % streams)
			}
			if batch = append(batch, m); len(batch) == cap(batch) || i == d.messages-1 {
				if _, err := o.Enqueue(ctx, b.DB, batch...); err != nil {
					return nil, err
				}
				batch = batch[:0]
			}
		}
		if err := b.execute(ctx, "analyze"); err != nil {
			return nil, err
		}
		return d.side(b, d.product)(ctx)
	}
}
