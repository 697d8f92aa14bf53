package main

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	wakepgx "github.com/incursa/watermill-outbox/wake/pgx"
)

const (
	latencyMessages = 300
	latencyPause    = 10 * time.Millisecond // the mean between two messages

	// latencyPoll is how often the bare side looks. The product does the same where no wake-ups come from other processes.
	latencyPoll = 5 * time.Millisecond
)

// arrivals are the times at which messages reached their handler, by UUID.
type arrivals struct {
	mu    sync.Mutex
	at    map[string]time.Time
	count chan struct{} // one for each arrival
}

func newArrivals(n int) *arrivals {
	return &arrivals{at: map[string]time.Time{}, count: make(chan struct{}, n)}
}

func (a *arrivals) add(uuid string) {
	now := time.Now()
	a.mu.Lock()
	a.at[uuid] = now
	a.mu.Unlock()
	a.count <- struct{}{}
}

// measureLatency measures the time from the commit in another process until the handler has the message.
func measureLatency(ctx context.Context, b *bench) ([]result, error) {
	worker, err := b.bareWorker(ctx, "ack")
	if err != nil {
		return nil, err
	}
	if err := worker.Close(); err != nil {
		return nil, err
	}
	inserts, err := b.inserts(1)
	if err != nil {
		return nil, err
	}
	b.showStatements("latency", inserts[0].text, worker.claim, worker.ack)

	prepare := func(ctx context.Context) error { return b.fill(ctx, 0, 1, false) }
	bares, products, err := b.compare(ctx, prepare, latencyOf(b, true), latencyOf(b, false))
	if err != nil {
		return nil, err
	}
	r := inMilliseconds(products[0], bares[0])
	r.P50, r.P99 = round(products[0]), round(products[1])
	r.BareP50, r.BareP99 = round(bares[0]), round(bares[1])
	r.Wakeups = "poll"
	if b.notifies() {
		r.Wakeups = "notify"
	}
	return []result{r}, nil
}

// notifies reports whether wake-ups come from other processes.
func (b *bench) notifies() bool { return b.dialect == outbox.Postgres{} }

// latencyOf receives what a process of its own publishes, and returns p50 and p99 in milliseconds.
func latencyOf(b *bench, bare bool) side {
	return func(ctx context.Context) (values []float64, err error) {
		n := b.count(latencyMessages)
		arrived := newArrivals(n)
		receive := b.receiveProduct
		if bare {
			receive = b.receiveBare
		}
		stop, err := receive(ctx, arrived)
		if err != nil {
			return nil, err
		}
		committed, err := startPublisher(ctx, publisherJob{
			Backend: b.name, DSN: b.dsn, Prefix: b.prefix, Bare: bare, Notify: b.notifies(), Messages: n, Payload: len(b.payload),
			Pause: latencyPause})
		for i := 0; i < n && err == nil; i++ {
			select {
			case <-arrived.count:
			case <-ctx.Done():
				err = ctx.Err()
			case <-time.After(patience):
				err = fmt.Errorf("%d of %d messages did not arrive within %v", n-i, n, patience)
			}
		}
		if stopErr := stop(); stopErr != nil || err != nil {
			return nil, firstError(err, stopErr)
		}
		return latencies(committed, arrived.at)
	}
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func latencies(committed, arrived map[string]time.Time) ([]float64, error) {
	var all []float64
	for uuid := range maps.Keys(committed) {
		at, ok := arrived[uuid]
		if !ok {
			return nil, fmt.Errorf("the message %s was published and did not arrive", uuid)
		}
		all = append(all, milliseconds(at.Sub(committed[uuid])))
	}
	return []float64{quantile(all, 0.5), quantile(all, 0.99)}, nil
}

// receiveProduct has a handler on a router.
func (b *bench) receiveProduct(ctx context.Context, arrived *arrivals) (stop func() error, err error) {
	config := outbox.SubscriberConfig{Dialect: b.dialect, Table: b.tableName()}
	stopListening := func() error { return nil }
	if b.notifies() {
		listener, err := wakepgx.NewListener(wakepgx.ListenerConfig{DSN: b.dsn, Channel: b.prefix}, nil)
		if err != nil {
			return nil, err
		}
		config.Wakeups, stopListening = listener.Wakeups(), listener.Close
	} else {
		config.PollInterval, config.MaxPollInterval = latencyPoll, latencyPoll
	}
	subscriber, err := outbox.NewSubscriber(b.DB, config, nil)
	if err != nil {
		return nil, firstError(err, stopListening())
	}
	stopRouter, err := route(ctx, subscriber, func(msg *message.Message) { arrived.add(msg.UUID) })
	if err != nil {
		return nil, firstError(err, subscriber.Close(), stopListening())
	}
	return func() error { return firstError(stopRouter(), stopListening()) }, nil
}

// receiveBare polls with the two statements and gives each message to a goroutine.
func (b *bench) receiveBare(ctx context.Context, arrived *arrivals) (stop func() error, err error) {
	worker, err := b.bareWorker(ctx, "ack")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		ticker := time.NewTicker(latencyPoll)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				ended <- nil
				return
			case <-ticker.C:
			}
			keys, messages, err := worker.take(context.WithoutCancel(ctx), topicName(0), bareClaim)
			if err != nil {
				ended <- err
				return
			}
			var handlers sync.WaitGroup
			for _, m := range messages {
				handlers.Go(func() { arrived.add(m.uuid) })
			}
			handlers.Wait()
			if len(keys) == 0 {
				continue
			}
			if err := worker.end(context.WithoutCancel(ctx), keys); err != nil {
				ended <- err
				return
			}
		}
	}()
	return func() error { cancel(); return firstError(<-ended, worker.Close()) }, nil
}
