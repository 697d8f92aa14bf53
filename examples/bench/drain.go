package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
)

const (
	bareWorkers = 2
	bareClaim   = 500
)

// draining measures messages a second from the first claim until the last ack is in the database.
type draining struct {
	messages int
	inFlight int           // the Subscriber's MaxInFlight
	deletes  bool          // acked messages are deleted
	joins    bool          // the messages are steps of joins
	router   bool          // through a Watermill router, which has a goroutine a message; the bare side has one too
	handler  time.Duration // how long it takes

	hooks      outbox.Hooks              // of the product
	middleware message.HandlerMiddleware // of its router; may be nil

	acked func(messages int) // is told of each batch that the product has acked
}

func (d draining) measure(ctx context.Context, b *bench) ([]result, error) {
	if err := d.show(ctx, b, "drain"); err != nil {
		return nil, err
	}
	d.messages = b.count(d.messages)
	prepare := func(ctx context.Context) error { return b.fill(ctx, d.messages, 1, false) }
	bares, products, err := b.compare(ctx, prepare, d.side(b, d.bare), d.side(b, d.product))
	if err != nil {
		return nil, err
	}
	r := perSecond(products[0], bares[0])
	r.MaxInFlight = d.inFlight
	return []result{r}, nil
}

// show prints the bare statements.
func (d draining) show(ctx context.Context, b *bench, figure string) error {
	worker, err := b.bareWorker(ctx, d.ackName())
	if err != nil {
		return err
	}
	b.showStatements(figure, worker.claim, worker.ack)
	return worker.Close()
}

// A drainer empties the table and returns how long that took.
type drainer func(context.Context, *bench) (time.Duration, error)

// side times a drain and looks whether nothing is left. Its values are messages a second, and microseconds of CPU time of
// this process for each.
func (d draining) side(b *bench, drain drainer) side {
	return func(ctx context.Context) ([]float64, error) {
		before, err := cpuTime()
		if err != nil {
			return nil, err
		}
		took, err := drain(ctx, b)
		if err != nil {
			return nil, err
		}
		after, err := cpuTime()
		if err != nil {
			return nil, err
		}
		states, err := b.states(ctx)
		if err != nil {
			return nil, err
		}
		want := map[outbox.Status]int{outbox.Done: d.messages}
		if d.deletes {
			want = nil
		}
		if len(states) != len(want) || states[outbox.Done] != want[outbox.Done] {
			return nil, fmt.Errorf("of %d messages the table has %v afterwards", d.messages, states)
		}
		n := float64(d.messages)
		return []float64{n / took.Seconds(), float64((after - before).Microseconds()) / n}, nil
	}
}

// ackName is the bare statement that ends messages.
func (d draining) ackName() string {
	switch {
	case d.deletes:
		return "delete"
	case d.joins:
		return "join_ack"
	default:
		return "ack"
	}
}

// handle is the handler: it takes its time and does nothing.
func (d draining) handle() {
	if d.handler > 0 {
		time.Sleep(d.handler)
	}
}

func (d draining) bare(ctx context.Context, b *bench) (time.Duration, error) {
	return byWorkers(ctx, d, func() (worker, error) { return b.bareWorker(ctx, d.ackName()) })
}

// A worker drains the table on a connection of its own.
type worker interface {
	drain(ctx context.Context, d draining) error
	Close() error
}

// byWorkers returns how long the workers need together.
func byWorkers(ctx context.Context, d draining, newWorker func() (worker, error)) (took time.Duration, err error) {
	workers := make([]worker, bareWorkers)
	for i := range workers {
		if workers[i], err = newWorker(); err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, workers[i].Close()) }()
	}
	errs := make([]error, len(workers))
	started := time.Now()
	var all sync.WaitGroup
	for i, worker := range workers {
		all.Go(func() { errs[i] = worker.drain(ctx, d) })
	}
	all.Wait()
	return time.Since(started), errors.Join(errs...)
}

func (w *bareWorker) drain(ctx context.Context, d draining) error {
	for {
		keys, messages, err := w.take(ctx, topicName(0), bareClaim)
		if err != nil || len(keys) == 0 {
			return err
		}
		if d.router {
			var handlers sync.WaitGroup
			for range messages {
				handlers.Go(d.handle)
			}
			handlers.Wait()
		}
		if err := w.end(ctx, keys); err != nil {
			return err
		}
	}
}

func (d draining) product(ctx context.Context, b *bench) (took time.Duration, err error) {
	drained := make(chan struct{})
	var left atomic.Int64
	left.Store(int64(d.messages))
	hooks := d.hooks
	hooks.OnSettle = func(e outbox.SettleEvent) {
		if d.hooks.OnSettle != nil {
			d.hooks.OnSettle(e)
		}
		acked := int64(e.Outcomes[outbox.Ack] - e.Refused)
		if d.acked != nil {
			d.acked(int(acked))
		}
		if acked > 0 && left.Add(-acked) == 0 {
			close(drained)
		}
	}
	subscriber, err := outbox.NewSubscriber(b.DB, outbox.SubscriberConfig{
		Dialect:     b.dialect,
		Table:       b.tableName(),
		MaxInFlight: d.inFlight,
		DeleteOnAck: d.deletes,
		Hooks:       hooks,
	}, nil)
	if err != nil {
		return 0, err
	}
	receive := d.receive
	if d.router {
		receive = d.route
	}
	started := time.Now()
	stop, err := receive(ctx, subscriber)
	if err != nil {
		return 0, errors.Join(err, subscriber.Close())
	}
	defer func() { err = errors.Join(err, stop()) }()
	select {
	case <-drained:
		return time.Since(started), nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// receive reads the Subscriber's channel.
func (d draining) receive(ctx context.Context, subscriber *outbox.Subscriber) (stop func() error, err error) {
	messages, err := subscriber.Subscribe(ctx, topicName(0))
	if err != nil {
		return nil, err
	}
	go func() {
		for msg := range messages {
			d.handle()
			msg.Ack()
		}
	}()
	return subscriber.Close, nil
}

// route receives through a router.
func (d draining) route(ctx context.Context, subscriber *outbox.Subscriber) (stop func() error, err error) {
	var middleware []message.HandlerMiddleware
	if d.middleware != nil {
		middleware = append(middleware, d.middleware)
	}
	return route(ctx, subscriber, func(*message.Message) { d.handle() }, middleware...)
}

// route hands the messages of the first topic to a handler on a router. Once stop returns, nothing of the Subscriber runs: a
// router's Close does not wait for that of its subscribers.
func route(ctx context.Context, subscriber *outbox.Subscriber, handle func(*message.Message), middleware ...message.HandlerMiddleware) (
	stop func() error, err error) {
	router, err := message.NewRouter(message.RouterConfig{}, nil)
	if err != nil {
		return nil, err
	}
	router.AddMiddleware(middleware...)
	router.AddConsumerHandler("bench", topicName(0), subscriber, func(msg *message.Message) error {
		handle(msg)
		return nil
	})
	ended := make(chan error, 1)
	go func() { ended <- router.Run(context.WithoutCancel(ctx)) }()
	select {
	case <-router.Running():
	case err := <-ended:
		return nil, err
	}
	return func() error { return errors.Join(router.Close(), <-ended, subscriber.Close()) }, nil
}
