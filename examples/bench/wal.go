package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// wal measures how many bytes of PostgreSQL's write-ahead log a message costs: to publish it, in a transaction of its own,
// and to drain it, claimed and acked as in the figure drain.
//
// Counted is how far the log of the server moves on, with all that is in it: the records of the table and its indexes, of
// cleaning up within pages, of commits, and their headers. Not counted is vacuuming afterwards: autovacuum leaves the table
// alone. Nor are images of full pages, which tell more of the time between checkpoints than of the statements: each run
// begins with a checkpoint while the table is empty, and a page that is made after a checkpoint has no image in the log
// until the next one. There are too few messages to bring that on, and if the clock does, it is in one run among others.
// What others write on the server is counted along, so that there should be nobody; the median leaves out what comes now
// and then.
const (
	wal         = "wal"
	walMessages = 50_000

	// walPayload is how many bytes of payload a run writes at most: a quarter of the log after which a server with its default
	// settings begins a checkpoint.
	walPayload = 128 << 20
)

func measureWAL(ctx context.Context, b *bench) ([]result, error) {
	if err := b.execute(ctx, "autovacuum_off"); err != nil {
		return nil, err
	}
	messages := max(1, min(b.count(walMessages), walPayload/len(b.payload)))
	published, err := b.publishedWAL(ctx, messages)
	if err != nil {
		return nil, fmt.Errorf("publish: %w", err)
	}
	drained, err := b.drainedWAL(ctx, messages)
	if err != nil {
		return nil, fmt.Errorf("drain: %w", err)
	}
	return []result{published, drained}, b.execute(ctx, "autovacuum_on")
}

func (b *bench) publishedWAL(ctx context.Context, messages int) (result, error) {
	product, err := b.productPublish()
	if err != nil {
		return result{}, err
	}
	inserts, err := b.inserts(1)
	if err != nil {
		return result{}, err
	}
	b.showStatements("wal, publish", inserts[0].text)
	prepare := func(ctx context.Context) error { return b.fill(ctx, 0, 1, false) }
	of := func(f publish) side {
		return func(ctx context.Context) ([]float64, error) {
			bytes, err := b.written(ctx, func() error { return publishAll(ctx, messages, f) })
			return []float64{bytes / float64(messages)}, err
		}
	}
	bares, products, err := b.compare(ctx, prepare, of(b.barePublish(inserts[0])), of(product))
	if err != nil {
		return result{}, err
	}
	r := perMessage(products[0], bares[0])
	r.Of, r.Publishers = "publish", publishers
	return r, nil
}

// publishAll publishes so many messages one by one, many at once.
func publishAll(ctx context.Context, messages int, f publish) error {
	var begun atomic.Int64
	errs := make([]error, publishers)
	var all sync.WaitGroup
	for i := range publishers {
		all.Go(func() {
			for errs[i] == nil && begun.Add(1) <= int64(messages) {
				errs[i] = f(ctx, 1)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

func (b *bench) drainedWAL(ctx context.Context, messages int) (result, error) {
	d := draining{messages: messages, inFlight: 2000}
	if err := d.show(ctx, b, "wal, drain"); err != nil {
		return result{}, err
	}
	prepare := func(ctx context.Context) error { return b.fill(ctx, messages, 1, false) }
	of := func(drain drainer) side {
		var bytes float64
		run := d.side(b, func(ctx context.Context, b *bench) (took time.Duration, err error) {
			bytes, err = b.written(ctx, func() error {
				took, err = drain(ctx, b)
				return err
			})
			return took, err
		})
		return func(ctx context.Context) ([]float64, error) {
			_, err := run(ctx)
			return []float64{bytes / float64(messages)}, err
		}
	}
	bares, products, err := b.compare(ctx, prepare, of(d.bare), of(d.product))
	if err != nil {
		return result{}, err
	}
	r := perMessage(products[0], bares[0])
	r.Of, r.MaxInFlight = "drain", d.inFlight
	return r, nil
}

// written returns how many bytes the log has grown by while f ran.
func (b *bench) written(ctx context.Context, f func() error) (float64, error) {
	before, err := b.logEnd(ctx)
	if err != nil {
		return 0, err
	}
	if err := f(); err != nil {
		return 0, err
	}
	after, err := b.logEnd(ctx)
	return float64(after - before), err
}

func (b *bench) logEnd(ctx context.Context) (end int64, err error) {
	err = b.query(ctx, "wal_end", func(rows *sql.Rows) error { return rows.Scan(&end) })
	return end, err
}
