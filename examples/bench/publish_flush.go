package main

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	wmsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
)

// flushing measures single publishes without a transaction by what shares their commits, and on PostgreSQL beside
// watermill-sql's publisher. Everything is run in turn.
type flushing struct{}

// A flushVariant is one way to publish, by so many at once.
type flushVariant struct {
	name       string
	publishers int
	open       func(b *bench, v *flushRun) (publish, func() error, error)

	runs [][]float64 // messages a second, p50, p99, calls a commit
}

// bareFlush is what the others with as many publishers are measured against.
const bareFlush = "bare"

func flushVariants(b *bench) []*flushVariant {
	var all []*flushVariant
	add := func(name string, open func(*bench, *flushRun) (publish, func() error, error), publishers ...int) {
		for _, n := range publishers {
			all = append(all, &flushVariant{name: name, publishers: n, open: open})
		}
	}
	add(bareFlush, openBareFlush, 1, publishers)
	add("immediate", openStrategy(outbox.Immediate), 1, publishers)
	add("batch", openStrategy(outbox.Batch), 1, publishers)
	add("interval", openStrategy(outbox.Interval), publishers)
	if b.name == "postgres" {
		add("watermill-sql", openWatermillSQL, 1, publishers)
	}
	return all
}

func (flushing) measure(ctx context.Context, b *bench) ([]result, error) {
	variants := flushVariants(b)
	for range b.runs {
		for _, v := range variants {
			if err := b.fill(ctx, 0, 1, false); err != nil {
				return nil, err
			}
			runtime.GC()
			values, err := v.run(ctx, b)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", v.name, err)
			}
			fmt.Fprintf(b.log, "  %-13s %2d publishers %.4g\n", v.name, v.publishers, values)
			v.runs = append(v.runs, values)
		}
	}
	bare := map[int][]float64{}
	var results []result
	for _, v := range variants {
		m := medians(v.runs)
		if v.name == bareFlush {
			bare[v.publishers] = m
			continue
		}
		r := perSecond(m[0], bare[v.publishers][0])
		r.Flush, r.Publishers = v.name, v.publishers
		r.P50, r.P99, r.CallsPerCommit = round(m[1]), round(m[2]), round(m[3])
		r.BareP50, r.BareP99 = round(bare[v.publishers][1]), round(bare[v.publishers][2])
		results = append(results, r)
	}
	return results, nil
}

// A flushRun counts the commits of one run.
type flushRun struct {
	mu      sync.Mutex
	calls   int
	commits float64
}

func (r *flushRun) onPublish(e outbox.PublishEvent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	r.commits += 1 / float64(e.Calls)
}

// run publishes for a moment that does not count, and then for about a second.
func (v *flushVariant) run(ctx context.Context, b *bench) (values []float64, err error) {
	counted := &flushRun{}
	f, stop, err := v.open(b, counted)
	if err != nil {
		return nil, err
	}
	if _, _, err := v.publish(ctx, b.duration(warmUpTime), f); err != nil {
		return nil, err
	}
	*counted = flushRun{}
	rate, took, err := v.publish(ctx, b.duration(publishTime/2), f)
	if err != nil {
		return nil, err
	}
	perCommit := 1.0
	if counted.commits > 0 {
		perCommit = float64(counted.calls) / counted.commits
	}
	return []float64{rate, quantile(took, 0.5), quantile(took, 0.99), perCommit}, stop()
}

// publish returns the messages a second, and how long each call took.
func (v *flushVariant) publish(ctx context.Context, d time.Duration, f publish) (rate float64, took []float64, err error) {
	var all sync.WaitGroup
	var mu sync.Mutex
	started := time.Now()
	for range v.publishers {
		all.Go(func() {
			var own []float64
			var failed error
			for again := true; again; again = time.Since(started) < d && failed == nil {
				from := time.Now()
				failed = f(ctx, 1)
				own = append(own, milliseconds(time.Since(from)))
			}
			mu.Lock()
			defer mu.Unlock()
			took = append(took, own...)
			if failed != nil {
				err = failed
			}
		})
	}
	all.Wait()
	return float64(len(took)) / time.Since(started).Seconds(), took, err
}

func openBareFlush(b *bench, _ *flushRun) (publish, func() error, error) {
	ways, err := b.inserts(1)
	if err != nil {
		return nil, nil, err
	}
	return b.barePublish(ways[0]), func() error { return nil }, nil
}

func openStrategy(strategy outbox.FlushStrategy) func(*bench, *flushRun) (publish, func() error, error) {
	return func(b *bench, r *flushRun) (publish, func() error, error) {
		p, err := outbox.NewPublisher(b.DB, outbox.PublisherConfig{
			Dialect: b.dialect, Table: b.tableName(), Flush: strategy, Hooks: outbox.Hooks{OnPublish: r.onPublish}}, nil)
		if err != nil {
			return nil, nil, err
		}
		return b.publishThrough(p), p.Close, nil
	}
}

// openWatermillSQL has a table of its own, which is dropped with the others.
func openWatermillSQL(b *bench, _ *flushRun) (publish, func() error, error) {
	p, err := wmsql.NewPublisher(b.DB, wmsql.PublisherConfig{AutoInitializeSchema: true, SchemaAdapter: wmsql.DefaultPostgreSQLSchema{
		GenerateMessagesTableName: func(string) string { return `"` + b.prefix + `_watermill_sql"` },
		GeneratePayloadType:       func(string) string { return "BYTEA" },
	}}, nil)
	if err != nil {
		return nil, nil, err
	}
	return b.publishThrough(p), p.Close, nil
}

func (b *bench) publishThrough(p message.Publisher) publish {
	topic := topicName(0)
	return func(ctx context.Context, batch int) error {
		return p.Publish(topic, b.messages(ctx, batch)...)
	}
}
