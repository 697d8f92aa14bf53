package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
)

// publishers is how many publish at once: as many as it takes for the database to commit many of them together.
const publishers = 32

const (
	publishTime = 2500 * time.Millisecond
	warmUpTime  = 500 * time.Millisecond
)

// publishing measures messages a second, in calls of batch messages.
type publishing struct{ batch int }

// A publish writes the messages of one call.
type publish func(ctx context.Context, batch int) error

func (p publishing) measure(ctx context.Context, b *bench) ([]result, error) {
	product, err := b.productPublish()
	if err != nil {
		return nil, err
	}
	bare, err := p.bestInsert(ctx, b)
	if err != nil {
		return nil, err
	}
	prepare := func(ctx context.Context) error { return b.fill(ctx, 0, 1, false) }
	if err := prepare(ctx); err != nil {
		return nil, err
	}
	if _, err := p.run(ctx, b.duration(warmUpTime), product); err != nil {
		return nil, err
	}
	bares, products, err := b.compare(ctx, prepare, p.side(b, bare), p.side(b, product))
	if err != nil {
		return nil, err
	}
	r := perSecond(products[0], bares[0])
	r.Publishers = publishers
	results := []result{r}
	if p.batch == 1 {
		shared, err := flushing{}.measure(ctx, b)
		if err != nil {
			return nil, err
		}
		results = append(results, shared...)
	}
	return results, nil
}

func (p publishing) side(b *bench, f publish) side {
	return func(ctx context.Context) ([]float64, error) {
		rate, err := p.run(ctx, b.duration(publishTime), f)
		return []float64{rate}, err
	}
}

// bestInsert is the fastest bare statement for so many rows.
func (p publishing) bestInsert(ctx context.Context, b *bench) (publish, error) {
	ways, err := b.inserts(p.batch)
	if err != nil {
		return nil, err
	}
	var best publish
	var bestRate float64
	for _, way := range ways {
		if err := b.fill(ctx, 0, 1, false); err != nil {
			return nil, err
		}
		f := b.barePublish(way)
		var rate float64
		for _, d := range []time.Duration{warmUpTime, publishTime / 2} {
			if rate, err = p.run(ctx, b.duration(d), f); err != nil {
				return nil, fmt.Errorf("%s: %w", way.name, err)
			}
		}
		b.showStatements(fmt.Sprintf("publish%d, %s, %.0f messages/s", p.batch, way.name, rate), way.text)
		if rate > bestRate {
			best, bestRate = f, rate
		}
	}
	return best, nil
}

// run publishes for about d, at least once each, and returns the messages a second.
func (p publishing) run(ctx context.Context, d time.Duration, f publish) (float64, error) {
	counts, errs := make([]int, publishers), make([]error, publishers)
	started := time.Now()
	var all sync.WaitGroup
	for i := range publishers {
		all.Go(func() {
			for again := true; again; again = time.Since(started) < d && errs[i] == nil {
				errs[i] = f(ctx, p.batch)
				counts[i] += p.batch
			}
		})
	}
	all.Wait()
	took := time.Since(started)
	total := 0
	for i := range publishers {
		if errs[i] != nil {
			return 0, errs[i]
		}
		total += counts[i]
	}
	return float64(total) / took.Seconds(), nil
}

func (b *bench) productPublish() (publish, error) {
	publisher, err := outbox.NewPublisher(b.DB, outbox.PublisherConfig{Dialect: b.dialect, Table: b.tableName()}, nil)
	if err != nil {
		return nil, err
	}
	return b.publishThrough(publisher), nil
}

func (b *bench) messages(ctx context.Context, n int) []*message.Message {
	messages := make([]*message.Message, n)
	for i := range messages {
		messages[i] = message.NewMessageWithContext(ctx, watermill.NewUUID(), b.payload)
	}
	return messages
}

func (b *bench) barePublish(way insert) publish {
	return func(ctx context.Context, batch int) error {
		rows := make([]row, batch)
		for i := range rows {
			var err error
			if rows[i], err = b.newRow(topicName(0)); err != nil {
				return err
			}
		}
		_, err := b.ExecContext(ctx, way.text, way.arguments(rows)...)
		return err
	}
}
