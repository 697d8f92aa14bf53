package main

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/incursa/watermill-outbox/join"
)

// joining measures draining of messages that are steps of joins, in joins of each of some sizes. The bare statements are
// those of draining, and two more in the transaction of the ack: an UPDATE of the steps, and one of the counters.
type joining struct {
	messages int
	steps    []int // a join
	perStep  bool  // the result is the cost of a step and how it grows, else steps a second
}

func (j joining) measure(ctx context.Context, b *bench) (results []result, err error) {
	ack, err := b.statement("join_ack", 0)
	if err != nil {
		return nil, err
	}
	b.showStatements("join", ack)
	var first float64
	for _, steps := range j.steps {
		r, err := j.compare(ctx, b, min(steps, b.count(j.messages)))
		if err != nil {
			return nil, err
		}
		if first == 0 {
			first = r.Value
		}
		if j.perStep {
			r.Growth = round(r.Value / first)
		}
		results = append(results, r)
	}
	return results, b.clear(ctx) // what has joins settles otherwise than what has none
}

func (j joining) compare(ctx context.Context, b *bench, steps int) (result, error) {
	d := draining{messages: b.count(j.messages), inFlight: 2000, joins: true}
	prepare := func(ctx context.Context) error {
		if err := b.fill(ctx, d.messages, 1, false); err != nil {
			return err
		}
		if err := b.execute(ctx, "join_seed", d.messages, steps); err != nil {
			return err
		}
		return b.execute(ctx, "analyze")
	}
	bares, products, err := b.compare(ctx, prepare, joinedSide(b, d.side(b, d.bare), d.messages), joinedSide(b, d.side(b, d.product), d.messages))
	if err != nil {
		return result{}, err
	}
	r := perSecond(products[0], bares[0])
	if j.perStep {
		r = inMicroseconds(1e6/products[0], 1e6/bares[0])
	}
	r.MaxInFlight, r.Steps = d.inFlight, steps
	return r, nil
}

// joinedSide looks whether all joins have completed afterwards, with every step counted.
func joinedSide(b *bench, run side, messages int) side {
	return func(ctx context.Context) ([]float64, error) {
		values, err := run(ctx)
		if err != nil {
			return nil, err
		}
		counted := 0
		err = b.query(ctx, "join_count", func(rows *sql.Rows) error {
			var status join.Status
			var joins, completed int
			if err := rows.Scan(&status, &joins, &completed); err != nil {
				return err
			}
			if status != join.Completed {
				return fmt.Errorf("%d joins are %v, with %d completed steps", joins, status, completed)
			}
			counted = completed
			return nil
		})
		if err == nil && counted != messages {
			err = fmt.Errorf("of %d steps, %d were counted", messages, counted)
		}
		return values, err
	}
}
