package main

import (
	"context"
	"fmt"
	"time"

	outbox "github.com/incursa/watermill-outbox"
)

// blocking measures claims of streams beside as many that are blocked, with messages behind them. What is beside it is the product,
// too: the same without those that are blocked.
type blocking struct {
	streams int // half of them are blocked
	behind  int // messages of each that wait behind the one that has failed
}

func (s blocking) measure(ctx context.Context, b *bench) ([]result, error) {
	s.streams = b.count(s.streams)
	o, err := outbox.New(b.DB, outbox.Config{Dialect: b.dialect, Table: b.tableName()}, nil)
	if err != nil {
		return nil, err
	}
	prepare := b.clear
	free, beside, err := b.compare(ctx, prepare, s.side(b, o, false), s.side(b, o, true))
	if err != nil {
		return nil, err
	}
	r := inMilliseconds(beside[1], free[1])
	r.Streams, r.Waiting = s.streams, s.streams/2*s.behind
	r.P50, r.P95, r.BareP50, r.BareP95 = round(beside[0]), round(beside[1]), round(free[0]), round(free[1])
	return []result{r}, b.clear(ctx)
}

// side returns p50 and p95 of claims. What was claimed is acked and published again outside the measured time.
func (s blocking) side(b *bench, o *outbox.Outbox, blocked bool) side {
	return func(ctx context.Context) ([]float64, error) {
		half := s.streams / 2
		if blocked {
			if err := s.block(ctx, b, o, half); err != nil {
				return nil, err
			}
		}
		if err := publishKeys(ctx, b, o, "ready", half, 2); err != nil {
			return nil, err
		}
		if err := routeAll(ctx, o); err != nil {
			return nil, err
		}
		if err := b.execute(ctx, "analyze"); err != nil {
			return nil, err
		}
		var took []float64
		for range max(fewest, b.count(claims)) {
			started := time.Now()
			messages, err := o.Claim(ctx, outbox.ClaimParams{Topics: []outbox.TopicQuota{{Topic: topicName(0)}}, Limit: min(claimSize, half)})
			if err != nil {
				return nil, err
			}
			took = append(took, milliseconds(time.Since(started)))
			if len(messages) != min(claimSize, half) {
				return nil, fmt.Errorf("a claim of %d streams has taken %d messages", half, len(messages))
			}
			again := make([]outbox.Message, len(messages))
			for i, m := range messages {
				again[i] = outbox.Message{Topic: m.Topic, StreamKey: m.StreamKey, Payload: b.payload}
			}
			if _, err := o.Settle(ctx, b.DB, outcomes(messages, outbox.Ack)); err != nil {
				return nil, err
			}
			if _, err := o.Enqueue(ctx, b.DB, again...); err != nil {
				return nil, err
			}
		}
		return []float64{quantile(took, 0.5), quantile(took, 0.95)}, nil
	}
}

// block fails the first message of so many streams, and publishes what waits behind it.
func (s blocking) block(ctx context.Context, b *bench, o *outbox.Outbox, streams int) error {
	if err := publishKeys(ctx, b, o, "blocked", streams, 1); err != nil {
		return err
	}
	for failed := 0; failed < streams; {
		messages, err := o.Claim(ctx, outbox.ClaimParams{Topics: []outbox.TopicQuota{{Topic: topicName(0)}}, Limit: 1000})
		if err != nil {
			return err
		}
		if _, err := o.Settle(ctx, b.DB, outcomes(messages, outbox.Fail)); err != nil {
			return err
		}
		failed += len(messages)
	}
	return publishKeys(ctx, b, o, "blocked", streams, s.behind)
}

// publishKeys publishes so many messages of each stream.
func publishKeys(ctx context.Context, b *bench, o *outbox.Outbox, name string, streams, each int) error {
	batch := make([]outbox.Message, 0, 1000)
	for i := range streams * each {
		batch = append(batch, outbox.Message{Topic: topicName(0), StreamKey: fmt.Sprint(name, i%streams), Payload: b.payload})
		if len(batch) == cap(batch) || i == streams*each-1 {
			if _, err := o.Enqueue(ctx, b.DB, batch...); err != nil {
				return err
			}
			batch = batch[:0]
		}
	}
	return nil
}

// routeAll claims what is not there until all that has arrived is in its stream.
func routeAll(ctx context.Context, o *outbox.Outbox) error {
	for range 10 {
		if _, err := o.Claim(ctx, outbox.ClaimParams{Topics: []outbox.TopicQuota{{Topic: "none"}}, Limit: 1000}); err != nil {
			return err
		}
	}
	return nil
}

func outcomes(messages []outbox.Claimed, outcome outbox.Outcome) []outbox.Settlement {
	settlements := make([]outbox.Settlement, len(messages))
	for i := range messages {
		settlements[i] = outbox.Settlement{Receipt: messages[i].Receipt, Outcome: outcome}
	}
	return settlements
}
