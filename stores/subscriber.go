package stores

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/field"
	"github.com/incursa/watermill-outbox/internal/flow"
	"github.com/incursa/watermill-outbox/internal/seam"
)

// A Subscriber is a Watermill subscriber that delivers the messages of all stores of a Provider, as outbox.Subscriber does
// for one: at least once, under leases that are renewed, each store with its own retries, retention and dead letters. Stores
// may be added and removed while it runs. It is safe for concurrent use.
//
// A store that does not answer is left alone and retried from time to time. That is logged with its identifier, shown by
// Status, and does not affect other stores.
type Subscriber struct {
	provider  Provider
	config    SubscriberConfig
	logger    watermill.LoggerAdapter
	scheduler *scheduler

	closing chan struct{} // closed when Close begins
	closed  chan struct{} // closed when Close is done

	mu            sync.Mutex
	workers       map[*Store]*outbox.Subscriber
	open          map[*outbox.Subscriber]*Store // those, and those that are being closed
	subscriptions map[*subscription]struct{}
	serving       sync.WaitGroup // of subscriptions
	started       bool
	failure       error // of Close
}

var _ message.Subscriber = (*Subscriber)(nil)

// A subscription is one topic in all stores.
type subscription struct {
	topic  string
	ended  <-chan struct{} // closed with its context
	out    chan *message.Message
	begin  func(*Store, *outbox.Subscriber) // starts it in a store; does nothing if that is closing
	stores sync.WaitGroup                   // that may still deliver into out
}

// NewSubscriber returns a subscriber over the stores of a provider. It touches their databases only once something is
// subscribed. A nil logger logs nothing. It returns an *outbox.FieldError that names a bad field.
func NewSubscriber(provider Provider, config SubscriberConfig, logger watermill.LoggerAdapter) (*Subscriber, error) {
	if provider == nil {
		return nil, field.Bad("provider", "is nil; pass what NewStatic or NewDynamic returns")
	}
	config.setDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	if logger == nil {
		logger = watermill.NopLogger{}
	}
	return &Subscriber{
		provider: provider, config: config, logger: logger, scheduler: newScheduler(&config),
		closing: make(chan struct{}), closed: make(chan struct{}),
		workers: map[*Store]*outbox.Subscriber{}, open: map[*outbox.Subscriber]*Store{}, subscriptions: map[*subscription]struct{}{},
	}, nil
}

// Subscribe delivers the messages of a topic from every store, including stores added later, until ctx ends or the
// Subscriber is closed; then the channel is closed. A message's context is the same as with outbox.Subscriber, and
// FromContext finds its store there. It returns outbox.ErrClosed after Close, and outbox.ErrCompeting if the topic already has a
// live subscription here and AllowCompeting is not set.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	if topic == "" {
		return nil, field.Bad("Topic", "is empty; name the topic")
	}
	if err := field.Key("Topic", topic); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if flow.IsClosed(s.closing) {
		return nil, outbox.ErrClosed
	}
	if s.competes(topic) {
		return nil, fmt.Errorf("subscribe to %q: %w", topic, outbox.ErrCompeting)
	}
	if !s.started {
		s.started = true
		go s.run()
	}
	sub := &subscription{topic: topic, ended: ctx.Done(), out: make(chan *message.Message)}
	sub.begin = func(store *Store, worker *outbox.Subscriber) {
		sub.stores.Add(1)
		err := seam.Subscriber(worker).SubscribeInto(withStore(ctx, store), topic, sub.out, sub.stores.Done)
		if err == nil {
			return
		}
		sub.stores.Done()
		if !errors.Is(err, outbox.ErrClosed) {
			s.logger.Error("Cannot subscribe to a topic in a store; other stores are not affected", err,
				watermill.LogFields{"store": store.ID(), "topic": topic})
		}
	}
	s.subscriptions[sub] = struct{}{}
	for store, worker := range s.workers {
		sub.begin(store, worker)
	}
	s.serving.Go(func() { s.serve(ctx, sub) })
	return sub.out, nil
}

// competes reports whether another subscription to the topic forbids one more. The caller holds the lock.
func (s *Subscriber) competes(topic string) bool {
	if s.config.Subscriber.AllowCompeting {
		return false
	}
	for other := range s.subscriptions {
		if other.topic == topic && !flow.IsClosed(other.ended) {
			return true
		}
	}
	return false
}

// serve waits for the end of a subscription.
func (s *Subscriber) serve(ctx context.Context, sub *subscription) {
	select {
	case <-ctx.Done():
	case <-s.closing:
	}
	s.mu.Lock()
	delete(s.subscriptions, sub)
	s.mu.Unlock()
	sub.stores.Wait()
	close(sub.out)
}

// run is the Subscriber's life: from the first subscription to the end of Close.
func (s *Subscriber) run() {
	follow(s.provider, s.closing, s.scheduler.order, s.join)
	s.serving.Wait()
	close(s.closed)
}

// join starts serving a store.
func (s *Subscriber) join(store *Store) (leave func()) {
	if !store.use() {
		return nil // it is already gone
	}
	m := newMember(s.scheduler, store, &s.config, s.logger)
	worker, err := s.worker(store, m)
	if err != nil {
		m.logger.Error("Cannot serve a store; other stores are not affected", err, nil)
		s.letGo(m)
		return nil
	}
	s.scheduler.add(m) // before the worker asks for a turn
	if !s.serveStore(store, worker) {
		s.scheduler.remove(m)
		s.letGo(m)
		return nil
	}
	return func() { s.leave(m, worker) }
}

// serveStore begins every subscription in a store. It returns false if Close has begun: Shutdown knows all that is open.
func (s *Subscriber) serveStore(store *Store, worker *outbox.Subscriber) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if flow.IsClosed(s.closing) {
		return false
	}
	s.workers[store], s.open[worker] = worker, store
	for sub := range s.subscriptions {
		sub.begin(store, worker)
	}
	return true
}

func (s *Subscriber) worker(store *Store, m *member) (*outbox.Subscriber, error) {
	config := s.config.Subscriber
	s.config.Configure(store, &config)
	config.ClaimTimeout, config.DrainTimeout = s.config.Subscriber.ClaimTimeout, s.config.Subscriber.DrainTimeout
	config.AllowCompeting = s.config.Subscriber.AllowCompeting
	if config.ConsumerGroup != "" {
		return nil, field.Bad("SubscriberConfig.ConsumerGroup", "is set by Configure; read the log of each store with Run")
	}
	worker, err := outbox.NewSubscriber(store.DB(), store.SubscriberConfig(config), s.logger)
	if err != nil {
		return nil, err
	}
	seam.Subscriber(worker).LimitBy(m)
	return worker, nil
}

// leave lets handlers finish and releases what was not handed out.
func (s *Subscriber) leave(m *member, worker *outbox.Subscriber) {
	s.mu.Lock()
	if s.workers[m.store] == worker { // and not its successor, if the provider lists the same store again
		delete(s.workers, m.store)
	}
	s.mu.Unlock()
	s.scheduler.remove(m)
	err := worker.Close()
	m.end()
	if err != nil {
		m.logger.Error("Cannot close the subscriber of a store", err, nil)
	}
	s.mu.Lock()
	delete(s.open, worker)
	if err != nil && flow.IsClosed(s.closing) {
		s.failure = errors.Join(s.failure, fmt.Errorf("close the subscriber of the store %q: %w", m.store.ID(), err))
	}
	s.mu.Unlock()
	s.letGo(m)
}

func (s *Subscriber) letGo(m *member) {
	if err := m.store.letGo(); err != nil {
		m.logger.Error("Cannot close the pool of a store", err, nil)
	}
}

// Close closes the Subscribers of all stores at the same time: nothing more is claimed, messages that were not handed out
// are released, and handlers may finish within DrainTimeout. It returns an error if a store did not answer in time. It is
// bounded, idempotent, and safe to call from many goroutines at once.
func (s *Subscriber) Close() error {
	s.beginClose()
	hung := time.NewTimer(s.config.Subscriber.DrainTimeout + 3*closeGrace)
	defer hung.Stop()
	select {
	case <-s.closed:
	case <-hung.C:
		return errors.New("stores: a store did not answer before Close gave up; the messages that were held are delivered again when their leases expire")
	}
	return s.failed()
}

// Shutdown is Close within the deadline of ctx: handlers get DrainTimeout or four fifths of the time left, whichever is less,
// and the rest is for settling. It shortens a Close that has already begun. It returns an error that names the stores which
// are not done when ctx ends.
func (s *Subscriber) Shutdown(ctx context.Context) error {
	open := s.beginClose()
	late := make(chan error, len(open))
	for worker, store := range open {
		go func() {
			err := worker.Shutdown(ctx)
			if err != nil {
				err = fmt.Errorf("shut down the subscriber of the store %q: %w", store.ID(), err)
			}
			late <- err
		}()
	}
	var failures []error
	for range open { // each ends with ctx
		failures = append(failures, <-late)
	}
	select {
	case <-s.closed:
		return s.failed()
	default:
	}
	if err := errors.Join(failures...); err != nil {
		return err
	}
	select {
	case <-s.closed:
		return s.failed()
	case <-ctx.Done():
		return fmt.Errorf("stores: the subscriber has not closed in time: %w", context.Cause(ctx))
	}
}

// beginClose returns what is still open.
func (s *Subscriber) beginClose() map[*outbox.Subscriber]*Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !flow.IsClosed(s.closing) {
		close(s.closing)
		if !s.started {
			close(s.closed)
		}
	}
	return maps.Clone(s.open)
}

func (s *Subscriber) failed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failure
}
