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
	"github.com/incursa/watermill-outbox/internal/field"
	"github.com/incursa/watermill-outbox/internal/flow"
)

// A Forwarder takes messages from an outbox and publishes them. Any number may run, in one process or many: each message is
// held by one of them at a time.
type Forwarder struct {
	config     Config
	publisher  message.Publisher
	subscriber *outbox.Subscriber
	breaker    *breaker
	logger     watermill.LoggerAdapter

	running chan struct{} // closed once all topics are subscribed
	closing chan struct{} // closed when Close begins
	calls   *calls        // running calls of Publish

	mu      sync.Mutex
	started bool
	held    []*waiting // of each worker
	workers sync.WaitGroup
	close   func() error
}

// New returns a forwarder from the outbox on db to a publisher. The publisher's Publish must return only once the broker has
// the messages; the caller closes it, after the forwarder. A nil logger logs nothing. It returns an error if db is nil, or an
// *outbox.FieldError that names a bad field.
func New(db *sql.DB, publisher message.Publisher, config Config, logger watermill.LoggerAdapter) (*Forwarder, error) {
	config.setDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	if publisher == nil {
		return nil, field.Bad("publisher", "is nil; pass the publisher of your broker")
	}
	if logger == nil {
		logger = watermill.NopLogger{}
	}
	subscriber, err := outbox.NewSubscriber(db, config.Subscriber, logger)
	if err != nil {
		return nil, field.Rename("SubscriberConfig", "Config.Subscriber", err)
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

// Run forwards until ctx ends or Close is called, and then returns what Close returns. It can be called once.
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

// begin does nothing to a forwarder that is running.
func (f *Forwarder) begin() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.isClosing() {
		return outbox.ErrClosed
	}
	if f.started {
		return errors.New("forwarder: it is already running")
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
	// The subscriptions end with Close and not with ctx, so that what is being published can be acknowledged.
	subscribed := context.WithoutCancel(ctx)
	for _, topic := range f.config.Topics {
		messages, err := f.subscriber.Subscribe(subscribed, topic)
		if err != nil {
			return fmt.Errorf("forward the topic %q: %w", topic, err)
		}
		items := make(chan *item, f.config.queued())
		f.workers.Go(func() { f.collect(topic, messages, items) }) //nolint:contextcheck // the context is the message's
		for range f.config.Concurrency {
			w := &worker{Forwarder: f, items: items, waiting: newWaiting(f.config.held(), topic, f.logger)}
			f.held = append(f.held, w.waiting)
			f.workers.Go(w.run)
		}
	}
	close(f.running)
	return nil
}

// collect turns messages, which arrive one by one, into items while the previous batch is published. It ends with the
// subscription.
func (f *Forwarder) collect(topic string, messages <-chan *message.Message, items chan<- *item) {
	defer close(items)
	for msg := range messages {
		select {
		case items <- newItem(msg, topic, f.config.Destination):
		case <-f.closing: // the worker may hang
			giveBack(msg)
		}
	}
}

// Running is closed once all topics are subscribed.
func (f *Forwarder) Running() <-chan struct{} { return f.running }

// State is Open while nothing can be published.
func (f *Forwarder) State() State { return f.breaker.current() }

// publisherGrace is how long a publisher may take to return after its messages' contexts have ended.
const publisherGrace = 5 * time.Second

// Close stops forwarding: messages being published may be acknowledged within the Subscriber's DrainTimeout, the rest go
// back to the outbox. It is bounded, idempotent and safe to call from many goroutines. A Publish that does not return by
// then is abandoned, and Close returns a *HungError that names it.
func (f *Forwarder) Close() error { return f.close() }

// Shutdown is Close within the deadline of ctx: messages being published may be acknowledged within DrainTimeout or four
// fifths of the remaining time, whichever is shorter.
func (f *Forwarder) Shutdown(ctx context.Context) error {
	closed := make(chan error, 1)
	go func() { closed <- f.Close() }()
	err := f.subscriber.Shutdown(ctx)
	select {
	case closing := <-closed:
		return closing
	case <-ctx.Done():
		return f.leftBehind(err)
	}
}

func (f *Forwarder) shut() error {
	f.mu.Lock()
	close(f.closing)
	f.mu.Unlock()
	err := f.subscriber.Close()
	ended := make(chan struct{})
	go func() { // lives as long as the call that hangs
		f.workers.Wait()
		close(ended)
	}()
	hung := time.NewTimer(publisherGrace)
	defer hung.Stop()
	select {
	case <-ended:
		return err
	case <-hung.C:
		return f.leftBehind(err)
	}
}

// leftBehind says what was not waited for, besides what the subscriber says.
func (f *Forwarder) leftBehind(err error) error {
	hung := f.calls.hung(f.publisher)
	if hung == nil && err == nil {
		return errHeldUp
	}
	return errors.Join(err, hung)
}

var errHeldUp = errors.New("forwarder: Config.Destination, or OnState, has not returned and was left behind")

func (f *Forwarder) isClosing() bool { return flow.IsClosed(f.closing) }
