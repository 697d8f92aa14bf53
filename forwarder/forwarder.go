package forwarder

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
)

// A Forwarder takes messages from an outbox and publishes them. Any number may run, in one process and in many: each
// message is with one of them at a time.
type Forwarder struct {
	config     Config
	publisher  message.Publisher
	subscriber *outbox.Subscriber
	breaker    *breaker
	logger     watermill.LoggerAdapter

	running chan struct{} // closed once all topics are subscribed
	closing chan struct{} // closed when Close begins
	calls   *calls        // of Publish that are under way

	mu      sync.Mutex
	started bool
	workers sync.WaitGroup
	close   func() error
}

// New returns a forwarder from the outbox on db to a publisher, which stays the caller's to close, after the forwarder.
// Its Publish must return only when the broker has the messages. A nil logger logs nothing.
func New(db *sql.DB, publisher message.Publisher, config Config, logger watermill.LoggerAdapter) (*Forwarder, error) {
	config.setDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	if publisher == nil {
		return nil, badField("publisher", "is nil; pass the publisher of your broker")
	}
	if logger == nil {
		logger = watermill.NopLogger{}
	}
	subscriber, err := outbox.NewSubscriber(db, config.Subscriber, logger)
	if err != nil {
		return nil, err
	}
	if config.Subscriber.Store != "" {
		logger = logger.With(watermill.LogFields{"store": config.Subscriber.Store})
	}
	f := &Forwarder{
		config: config, publisher: publisher, subscriber: subscriber, logger: logger,
		breaker: newBreaker(config, logger), calls: newCalls(),
		running: make(chan struct{}), closing: make(chan struct{}),
	}
	f.close = sync.OnceValue(f.shut)
	return f, nil
}

// Run forwards until ctx ends or Close is called, and then returns what Close does. It can be called once.
func (f *Forwarder) Run(ctx context.Context) error {
	if err := f.begin(); err != nil {
		return err
	}
	if err := f.start(ctx); err != nil {
		return errors.Join(err, f.Close())
	}
	select {
	case <-ctx.Done():
	case <-f.closing:
	}
	return f.Close()
}

// begin leaves a forwarder that runs as it is.
func (f *Forwarder) begin() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.isClosing() {
		return outbox.ErrClosed
	}
	if f.started {
		return errors.New("forwarder: it runs already")
	}
	f.started = true
	return nil
}

func (f *Forwarder) start(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.isClosing() {
		return outbox.ErrClosed
	}
	// The subscriptions end with Close and not with ctx: what is being published may be acknowledged.
	subscribed := context.WithoutCancel(ctx)
	for _, topic := range f.config.Topics {
		messages, err := f.subscriber.Subscribe(subscribed, topic)
		if err != nil {
			return fmt.Errorf("forward the topic %q: %w", topic, err)
		}
		items := make(chan *item, f.config.BatchSize*f.config.Concurrency)
		f.workers.Go(func() { f.collect(topic, messages, items) }) //nolint:contextcheck // the context is the message's
		for range f.config.Concurrency {
			w := &worker{Forwarder: f, items: items, waiting: newWaiting(f.config.held(), topic, f.logger)}
			f.workers.Go(w.run)
		}
	}
	close(f.running)
	return nil
}

// collect makes items of messages, which come one by one, while the batch before is published. It ends with the
// subscription.
func (f *Forwarder) collect(topic string, messages <-chan *message.Message, items chan<- *item) {
	defer close(items)
	for msg := range messages {
		select {
		case items <- newItem(msg, topic, f.config.Destination):
		case <-f.closing: // and the worker may hang
			giveBack(msg)
		}
	}
}

// Running is closed once all topics are subscribed.
func (f *Forwarder) Running() chan struct{} { return f.running }

// State is Open while nothing can be published.
func (f *Forwarder) State() State { return f.breaker.current() }

// publisherGrace is how long a publisher may take to heed the end of its messages' contexts.
const publisherGrace = 5 * time.Second

// Close stops forwarding: what is being published may be acknowledged within the Subscriber's DrainTimeout, the rest goes
// back to the outbox. It is bounded, idempotent and safe to call from many goroutines. A Publish that does not return by
// then is left behind, and Close returns a *HungError that names it.
func (f *Forwarder) Close() error { return f.close() }

// Shutdown is Close within the deadline of ctx: what is being published may be acknowledged for the less of DrainTimeout and
// four fifths of what is left.
func (f *Forwarder) Shutdown(ctx context.Context) error {
	closed := make(chan error, 1)
	go func() { closed <- f.Close() }()
	err := f.subscriber.Shutdown(ctx)
	select {
	case closing := <-closed:
		return closing
	case <-ctx.Done():
		return errors.Join(err, f.calls.hung(f.publisher))
	}
}

func (f *Forwarder) shut() error {
	f.mu.Lock()
	close(f.closing)
	f.mu.Unlock()
	err := f.subscriber.Close()
	ended := make(chan struct{})
	go func() { // lives as long as what hangs
		f.workers.Wait()
		close(ended)
	}()
	hung := time.NewTimer(publisherGrace)
	defer hung.Stop()
	select {
	case <-ended:
		return err
	case <-hung.C:
		return errors.Join(err, f.calls.hung(f.publisher))
	}
}

func (f *Forwarder) isClosing() bool {
	select {
	case <-f.closing:
		return true
	default:
		return false
	}
}
