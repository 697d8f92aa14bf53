package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// roundtrips measures how often the database is called for 1,000 messages that are drained by handlers that return at once,
// with two batches in flight: one is handled while the other is on its way. Beside it, a loop claims a batch and acks it: two
// calls a batch.
//
// A call is a statement, or the beginning or end of a transaction, as the driver gets it: a round trip on a server, once the
// driver has prepared the statement on the connection, and not even that on SQLite. The product is counted while it drains,
// from one ack to another: neither how it starts and stops, nor looking for messages when there are none.
const (
	roundtripMessages = 20_000
	roundtripFewest   = 2_000 // at any scale
	roundtripBatch    = 100
)

func measureRoundtrips(ctx context.Context, b *bench) (results []result, err error) {
	var calls atomic.Int64
	pool, err := b.openCounted(ctx, b.Driver(), b.dsn, &calls)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, pool.Close()) }()
	counted, counting := *b, *b.table
	counting.DB = pool
	counted.table = &counting

	// Whole batches, so that the loop has no last one that is smaller.
	messages := max(b.count(roundtripMessages), roundtripFewest) / roundtripBatch * roundtripBatch
	steady := &steadyCalls{calls: &calls, from: roundtripBatch, to: messages - roundtripBatch}
	d := draining{messages: messages, inFlight: 2 * roundtripBatch, acked: steady.acked}
	if err := d.show(ctx, b, "roundtrips"); err != nil {
		return nil, err
	}
	prepare := func(ctx context.Context) error { return b.fill(ctx, messages, 1, false) }
	bare := func(ctx context.Context) ([]float64, error) {
		n, err := bareCalls(ctx, &counted, &calls, messages)
		return []float64{1000 * float64(n) / float64(messages)}, err
	}
	run := d.side(&counted, d.product)
	product := func(ctx context.Context) ([]float64, error) {
		steady.begin()
		if _, err := run(ctx); err != nil {
			return nil, err
		}
		return []float64{1000 * steady.perMessage()}, nil
	}
	bares, products, err := b.compare(ctx, prepare, bare, product)
	if err != nil {
		return nil, err
	}
	r := perThousand(products[0], bares[0])
	r.MaxInFlight = d.inFlight
	return []result{r}, nil
}

// bareCalls drains the table in whole batches and returns how many calls that took.
func bareCalls(ctx context.Context, b *bench, calls *atomic.Int64, messages int) (n int64, err error) {
	worker, err := b.bareWorker(ctx, "ack")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, worker.Close()) }()
	before := calls.Load()
	for range messages / roundtripBatch {
		keys, _, err := worker.take(ctx, topicName(0), roundtripBatch)
		if err == nil && len(keys) != roundtripBatch {
			err = fmt.Errorf("a claim of %d took %d", roundtripBatch, len(keys))
		}
		if err == nil {
			err = worker.end(ctx, keys)
		}
		if err != nil {
			return 0, err
		}
	}
	return calls.Load() - before, nil
}

// steadyCalls counts the calls between two acks: the first by which so many messages are acked, and the same of another number.
type steadyCalls struct {
	calls    *atomic.Int64
	from, to int

	mu          sync.Mutex
	total       int
	first, last mark
}

// A mark is how many messages had been acked after so many calls.
type mark struct {
	messages int
	calls    int64
}

func (s *steadyCalls) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total, s.first, s.last = 0, mark{}, mark{}
}

func (s *steadyCalls) acked(messages int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total += messages
	now := mark{s.total, s.calls.Load()}
	if s.first.messages == 0 && s.total >= s.from {
		s.first = now
	}
	if s.last.messages == 0 && s.total >= s.to {
		s.last = now
	}
}

func (s *steadyCalls) perMessage() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return float64(s.last.calls-s.first.calls) / float64(s.last.messages-s.first.messages)
}
