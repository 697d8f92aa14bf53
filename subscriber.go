package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/field"
	"github.com/incursa/watermill-outbox/internal/flow"
	"github.com/incursa/watermill-outbox/internal/seam"
)

// closeGrace is how long Close waits for the database after DrainTimeout; the last second is for interrupted statements to
// end.
const closeGrace = 15 * time.Second

// A Subscriber is a Watermill subscriber that delivers the messages of the outbox, each at least once, to one of any
// number of competing workers. One loop serves all topics that are subscribed on it: one round trip to the database settles
// acked and nacked messages, and claims more. It is safe for concurrent use.
//
// It needs up to five connections of the pool at a time. In a pool with a limit it keeps one for itself while it holds
// messages, so that it can renew leases and settle even if handlers hold all others. A pool of one has none to spare:
// handlers that hold its only connection for long then get fewer messages at a time, down to one.
type Subscriber struct {
	outbox *Outbox
	config SubscriberConfig
	logger watermill.LoggerAdapter

	window   *flow.Window[*Delivery]
	holdings *flow.Leases[*Delivery]
	spare    *spare
	settler  *settler
	keeper   *keeper
	pacer    *flow.Pacer
	from     claimFrom

	closing chan struct{} // closed when Close begins: from then on nothing is claimed or handed out
	closed  chan struct{} // closed when Close is done
	failure error         // of Close, set before closed is closed
	expire  func()        // ends the time of handlers

	limiter seam.Limiter // schedules the claims of many Subscribers; may be nil

	wakeups wakeRelay // from other processes, to the readers of the log

	mu            sync.Mutex
	topics        map[string]*topic // those with a live subscription
	started       bool
	subscriptions sync.WaitGroup
}

var _ message.Subscriber = (*Subscriber)(nil)

// NewSubscriber returns a subscriber on db. It does not touch the database before the first subscription. A nil logger logs
// nothing. It returns an error if db is nil, or a *FieldError that names a bad field.
func NewSubscriber(db *sql.DB, config SubscriberConfig, logger watermill.LoggerAdapter) (*Subscriber, error) {
	config.setDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	if db == nil {
		return nil, base.ErrNilDB
	}
	o, err := newOutbox(db, Config{
		Dialect: config.Dialect, Schema: config.Schema, Table: config.Table, Store: config.Store,
		WorkerName: config.WorkerName, DeleteOnAck: config.DeleteOnAck, OnStreamFailure: config.OnStreamFailure, Hooks: config.Hooks,
		ExpiryBackoff: expiryBackoff(config.Backoff, config.LeaseDuration),
	}, logger)
	if err != nil {
		return nil, field.In("SubscriberConfig", err)
	}
	janitor, err := o.janitor(config.Janitor)
	if err != nil {
		return nil, field.Rename("JanitorConfig", "SubscriberConfig.Janitor", err)
	}
	s := &Subscriber{
		outbox: o,
		config: config,
		logger: o.logger,
		window: flow.NewWindow(flow.Limits{
			Messages: config.MaxInFlight, PerTopic: config.MaxInFlightPerTopic, Bytes: config.MaxInFlightBytes, Batch: maxBatch,
		}, (*Delivery).weight),
		holdings: flow.NewLeases((*Delivery).owner),
		pacer:    flow.NewPacer(config.PollInterval, config.MaxPollInterval),
		closing:  make(chan struct{}),
		closed:   make(chan struct{}),
		topics:   map[string]*topic{},
	}
	s.spare = newSpare(db)
	remover := newRemover(o, config.LeaseDuration)
	s.settler = &settler{
		outbox: o, window: s.window, holdings: s.holdings, spare: s.spare, remover: remover, config: config, logger: o.logger,
		runs: newRuns(config.PipelineStreams), arrived: flow.NewNote(), prompted: flow.NewNote(),
		pending: newAnswerQueue(), ordered: newOrderedQueue(), locked: newAnswerQueue(), stuck: newStuck(),
		drain: make(chan struct{}), expire: make(chan struct{}),
	}
	s.settler.hand, s.settler.freed = s.hand, s.pacer.Wake
	s.keeper = &keeper{
		outbox: o, janitor: janitor, remover: remover, config: config,
		presence: &presence{outbox: o, holdings: s.holdings, spare: s.spare, lease: config.LeaseDuration, affinity: config.StreamAffinity},
		leases:   &leases{outbox: o, holdings: s.holdings, spare: s.spare, window: s.window, lease: config.LeaseDuration, logger: o.logger},
		lost:     newLostClaims(o, s.spare, config),
		backlog:  &backlog{outbox: o, subscribed: s.topicNames, after: config.UnhandledAfter},
	}
	s.expire = sync.OnceFunc(func() { close(s.settler.expire) })
	return s, nil
}

// Subscribe delivers the messages of a topic until ctx ends or the Subscriber is closed; then the channel is closed,
// messages that were not handed out are released, and handlers may finish.
//
// A message's context keeps the values of ctx, and ends when the message is acked, nacked, loses its lease, or outlives
// DrainTimeout or MaxHandlerTime. If its lease could not be renewed in time, the context ends before another worker may
// have the message; the message is then delivered again after the handler has returned, whether it acks or nacks.
//
// It returns ErrClosed after Close, ErrCompeting if the topic already has a live subscription in this process and
// AllowCompeting is not set, or a *FieldError if topic is not valid.
func (s *Subscriber) Subscribe(ctx context.Context, name string) (<-chan *message.Message, error) {
	out := make(chan *message.Message)
	if err := s.subscribeInto(ctx, name, out, func() { close(out) }); err != nil {
		return nil, err
	}
	return out, nil
}

// subscribeInto is Subscribe into a channel that it leaves open: see seam.Subscribing.
func (s *Subscriber) subscribeInto(ctx context.Context, name string, out chan<- *message.Message, done func()) error {
	if err := (&Message{Topic: name}).validate(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if flow.IsClosed(s.closing) {
		return ErrClosed
	}
	if s.config.ConsumerGroup != "" {
		s.subscribeLog(ctx, name, out, done)
		return nil
	}
	leave, err := s.compete(ctx, name)
	if err != nil {
		return err
	}
	t := s.topics[name]
	if t == nil {
		t = &topic{queue: make(chan *Delivery, s.config.MaxInFlight)}
		s.topics[name] = t
	} else {
		s.logger.Info("A second subscription to a topic competes for its messages; to give each message to several handlers use an EventGroupProcessor",
			watermill.LogFields{"topic": name})
	}
	t.subscribers++
	if !s.started {
		s.started = true
		go s.run() //nolint:contextcheck // the work ends with Close, not with the first subscription
	}
	s.subscriptions.Go(func() {
		defer done()
		defer leave()
		defer s.unsubscribe(name, t)
		s.serve(ctx, t, out)
	})
	s.pacer.Wake()
	return nil
}

// subscribeLog delivers a topic of the log. The caller holds the lock.
func (s *Subscriber) subscribeLog(ctx context.Context, name string, out chan<- *message.Message, done func()) {
	if !s.started {
		s.started = true
		go s.runLog() //nolint:contextcheck // the work ends with Close, not with the first subscription
	}
	r := s.newLogReader(name)
	s.subscriptions.Go(func() {
		defer done()
		stopListening := wakeOn(r.pacer, s.config.Store, nil, func(topic string) bool { return topic == name })
		defer stopListening()
		stopWakeups := s.wakeups.add(func(topic string) {
			if topic == "" || topic == name {
				r.pacer.Wake()
			}
		})
		defer stopWakeups()
		if err := r.run(ctx, out); err != nil && flow.IsClosed(s.closing) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.failure = errors.Join(s.failure, err)
		}
	})
}

// runLog is run for a consumer group: each subscription reads the log for itself.
func (s *Subscriber) runLog() {
	ctx, cancel := context.WithCancel(context.Background())
	var keeping sync.WaitGroup
	keeping.Go(func() { s.keeper.janitor.run(ctx, s.keeper.away) })
	watch := newSequencerWatch(s.outbox, s.logger, s.config.LeaseDuration, s.config.UnhandledAfter)
	keeping.Go(func() {
		s.keeper.unhurried(ctx, s.config.UnhandledAfter, duty{"Cannot look whether a Sequencer is at work, trying again", watch.look})
	})
	s.wakeups.run(s.config.Wakeups, s.closing)
	s.subscriptions.Wait()
	cancel()
	keeping.Wait()
	close(s.closed)
}

// SubscribeInitialize implements message.SubscribeInitializer. It creates the consumer group, so that messages that the group
// has not passed are not purged from the log. Without a consumer group it does nothing.
func (s *Subscriber) SubscribeInitialize(topic string) error {
	if err := (&Message{Topic: topic}).validate(); err != nil {
		return err
	}
	if s.config.ConsumerGroup == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeGrace)
	defer cancel()
	return s.groupCursor(topic).create(ctx)
}

func (s *Subscriber) unsubscribe(name string, t *topic) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.subscribers--; t.subscribers > 0 {
		return
	}
	delete(s.topics, name)
	for {
		select {
		case d := <-t.queue:
			s.settler.giveBack(Release, nil, d)
		default:
			return
		}
	}
}

func (s *Subscriber) subscribed(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.topics[name] != nil
}

func (s *Subscriber) topicNames() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := make([]string, 0, len(s.topics))
	for name := range s.topics {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// run works from the first subscription to the end of Close.
func (s *Subscriber) run() {
	ctx, cancel := context.WithCancelCause(context.Background())
	stopWakeups := wakeOn(s.pacer, s.config.Store, s.config.Wakeups, s.subscribed)

	var claiming, settling, keeping sync.WaitGroup
	keepCtx, stopKeeping := context.WithCancel(ctx)
	claiming.Go(func() { s.claim(ctx) })
	if s.limiter == nil && s.outbox.engine.Dialect.Traits().Procedures { // SQLite has one writer at a time
		claiming.Go(func() { s.claimBeside(ctx) })
	}
	settling.Go(s.settler.collect)
	settling.Go(func() { s.settler.write(ctx) })
	keeping.Go(func() { s.keeper.run(keepCtx) })

	<-s.closing
	go endAfter(ctx, s.config.DrainTimeout, s.settler.expire, s.expire, closeGrace-time.Second, func() { cancel(errCloseTimeout) })
	stopWakeups()
	s.subscriptions.Wait()
	claiming.Wait()
	close(s.settler.drain)
	settling.Wait()
	s.settler.endClaims(ctx)
	stopKeeping()
	keeping.Wait()
	s.keeper.remover.last(ctx)
	s.keeper.presence.leave(ctx)
	s.spare.release()
	s.failure = context.Cause(ctx)
	cancel(nil)
	close(s.closed)
}

// endAfter bounds the end of work: it calls expired, which ends the time of handlers, after the drain timeout or once expire is
// closed, and giveUp a grace after that. Work that ends by itself stops both.
func endAfter(work context.Context, drain time.Duration, expire <-chan struct{}, expired func(), grace time.Duration, giveUp func()) {
	draining := time.NewTimer(drain)
	defer draining.Stop()
	select {
	case <-draining.C:
	case <-expire:
	case <-work.Done():
		return
	}
	expired()
	abandon := time.AfterFunc(grace, giveUp)
	defer abandon.Stop()
	<-work.Done()
}

var errCloseTimeout = errors.New("outbox: the database did not answer before Close gave up; the messages that it held are delivered again when their leases expire")

// InFlight returns, by topic, the number of messages of the queue that are claimed and not yet acked or nacked, for a gauge.
// Topics that are subscribed to have 0. It is safe for concurrent use.
func (s *Subscriber) InFlight() map[string]int {
	held := s.window.InFlight()
	for _, topic := range s.topicNames() {
		held[topic] += 0
	}
	return held
}

// Close stops claiming, releases messages that were not handed out, lets handlers finish and settle within DrainTimeout,
// and then releases what they still hold. It is idempotent and safe for concurrent use; all calls return when it is done, no
// later than 30 s after DrainTimeout. It returns an error if the database did not answer in time, or if a consumer group's lease
// could not be released.
func (s *Subscriber) Close() error {
	s.beginClose()
	hung := time.NewTimer(s.config.DrainTimeout + 2*closeGrace)
	defer hung.Stop()
	select {
	case <-s.closed:
		return s.failure
	case <-hung.C: // the driver ignores its context
		return errCloseTimeout
	}
}

func (s *Subscriber) beginClose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if flow.IsClosed(s.closing) {
		return
	}
	close(s.closing)
	if !s.started {
		close(s.closed)
	}
}

// Shutdown is Close within the deadline of ctx: handlers get DrainTimeout or four fifths of the time left, whichever is less,
// and the rest is for settling. It shortens a Close that has already begun. It returns an error if it is not done when ctx
// ends.
func (s *Subscriber) Shutdown(ctx context.Context) error {
	s.beginClose()
	if deadline, limited := ctx.Deadline(); limited {
		if left := time.Until(deadline); left > 0 {
			defer time.AfterFunc(left/5*4, s.expire).Stop()
		} else {
			s.expire()
		}
	}
	select {
	case <-s.closed:
		return s.failure
	case <-ctx.Done():
		return fmt.Errorf("outbox: the subscriber has not closed in time; the messages that it holds are delivered again when their leases expire: %w", context.Cause(ctx))
	}
}
