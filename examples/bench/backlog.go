package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	outbox "github.com/incursa/watermill-outbox"
)

// The backlog: the same claims with few and with many messages waiting, of which every hundredth is due only later.
// What was claimed is acked, and as many are added again outside the measured time, so that as many keep waiting.
const (
	claims    = 200
	fewest    = 10 // claims, at any scale
	claimSize = 100
)

var (
	backlogTopics  = []int{1, 50}
	backlogWaiting = []int{10_000, 1_000_000}
)

// A backlogRun measures on one table: claims of both sides, and the product's acks.
type backlogRun struct {
	b               *bench
	waiting, topics int
	seeded          int
	turn            int
}

// claimAndAck claims a batch, acks it, and returns how long both took.
type claimAndAck func(ctx context.Context, turn int) (claim, ack time.Duration, err error)

func measureBacklog(ctx context.Context, b *bench) (results []result, err error) {
	worker, err := b.bareWorker(ctx, "ack")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, worker.Close()) }()
	product, err := outbox.New(b.DB, outbox.Config{Dialect: b.dialect, Table: b.tableName()}, nil)
	if err != nil {
		return nil, err
	}
	b.showStatements("backlog", worker.claim, worker.ack)
	for _, topics := range backlogTopics {
		var first float64
		for _, waiting := range backlogWaiting {
			r := &backlogRun{b: b, waiting: max(b.count(waiting), 2*claimSize*topics), topics: topics}
			answer, err := r.measure(ctx, r.bare(worker), r.product(product))
			if err != nil {
				return nil, err
			}
			if first == 0 {
				first = answer.P95
			}
			answer.Growth = round(answer.P95 / first)
			results = append(results, answer)
		}
	}
	return results, nil
}

func (r *backlogRun) measure(ctx context.Context, bare, product claimAndAck) (result, error) {
	if err := r.b.fill(ctx, r.waiting, r.topics, true); err != nil {
		return result{}, err
	}
	r.seeded = r.waiting
	prepare := func(ctx context.Context) error { return r.b.execute(ctx, "analyze") }
	bares, products, err := r.b.compare(ctx, prepare, r.side(bare), r.side(product))
	if err != nil {
		return result{}, err
	}
	answer := inMilliseconds(products[1], bares[1])
	answer.Waiting, answer.Topics = r.waiting, r.topics
	answer.P50, answer.P95, answer.AckP50, answer.AckP95 = round(products[0]), round(products[1]), round(products[2]), round(products[3])
	answer.BareP50, answer.BareP95 = round(bares[0]), round(bares[1])
	return answer, nil
}

// side returns p50 and p95 of the claims, and of the acks.
func (r *backlogRun) side(f claimAndAck) side {
	return func(ctx context.Context) ([]float64, error) {
		var claim, ack []float64
		for range max(fewest, r.b.count(claims)) {
			claimTook, ackTook, err := f(ctx, r.turn)
			if err != nil {
				return nil, err
			}
			r.turn++
			claim, ack = append(claim, milliseconds(claimTook)), append(ack, milliseconds(ackTook))
			if err := r.b.seed(ctx, r.seeded, claimSize, r.topics, false); err != nil {
				return nil, err
			}
			r.seeded += claimSize
		}
		return []float64{quantile(claim, 0.5), quantile(claim, 0.95), quantile(ack, 0.5), quantile(ack, 0.95)}, nil
	}
}

// product takes an equal share of each topic, beginning with another one each time.
func (r *backlogRun) product(o *outbox.Outbox) claimAndAck {
	return func(ctx context.Context, turn int) (claim, ack time.Duration, err error) {
		quotas := make([]outbox.TopicQuota, r.topics)
		for i := range quotas {
			quotas[i] = outbox.TopicQuota{Topic: topicName((turn + i) % r.topics), Quota: claimSize / r.topics}
		}
		started := time.Now()
		messages, err := o.Claim(ctx, outbox.ClaimParams{Topics: quotas, Limit: claimSize})
		claim = time.Since(started)
		if err != nil {
			return 0, 0, err
		}
		if len(messages) != claimSize {
			return 0, 0, fmt.Errorf("a claim of %d with %d waiting took %d", claimSize, r.waiting, len(messages))
		}
		settlements := make([]outbox.Settlement, len(messages))
		for i := range messages {
			settlements[i] = outbox.Settlement{Receipt: messages[i].Receipt, Outcome: outbox.Ack}
		}
		started = time.Now()
		_, err = o.Settle(ctx, r.b.DB, settlements)
		return claim, time.Since(started), err
	}
}

// bare takes from one topic, another one each time.
func (r *backlogRun) bare(worker *bareWorker) claimAndAck {
	return func(ctx context.Context, turn int) (claim, ack time.Duration, err error) {
		started := time.Now()
		keys, _, err := worker.take(ctx, topicName(turn%r.topics), claimSize)
		claim = time.Since(started)
		if err != nil {
			return 0, 0, err
		}
		started = time.Now()
		err = worker.end(ctx, keys)
		return claim, time.Since(started), err
	}
}
