package amqp

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	amqp091 "github.com/rabbitmq/amqp091-go"
)

// Pauses between attempts to connect. Meanwhile Publish returns at once with the reason for the last failure.
const (
	reconnectMin = 50 * time.Millisecond
	reconnectMax = time.Second
)

// A Publisher publishes to RabbitMQ on one connection. Its Publish returns once the broker has answered for every message.
// It is safe for concurrent use.
type Publisher struct {
	config Config
	logger watermill.LoggerAdapter

	closing chan struct{}

	mu     sync.Mutex // guards closing, and the adding to work
	closed bool
	work   sync.WaitGroup // all goroutines, and the calls of Publish

	connecting sync.Mutex // guards what follows
	session    *session
	failure    error // why there was no connection the last time
	pause      time.Duration
	again      time.Time // when the next attempt is due
}

var _ message.Publisher = (*Publisher)(nil)

// NewPublisher returns a publisher that connects when it first publishes, and reconnects when it has to. A nil logger logs
// nothing. It returns an *outbox.FieldError that names a bad field.
func NewPublisher(config Config, logger watermill.LoggerAdapter) (*Publisher, error) {
	config.setDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	if logger == nil {
		logger = watermill.NopLogger{}
	}
	return &Publisher{config: config, logger: logger, closing: make(chan struct{})}, nil
}

// Publish publishes the messages and waits until the broker has confirmed them. Its error is a forwarder.BatchError with the
// result of each; after Close, all are outbox.Unavailable. A message whose context has ended is not published, and nothing is
// waited for once the contexts of all have ended.
func (p *Publisher) Publish(topic string, messages ...*message.Message) error {
	if len(messages) == 0 {
		return nil
	}
	exchange, key := p.config.Route(topic)
	c := newCall(exchange, key, make([]amqp091.Publishing, len(messages)))
	if !p.begin() {
		c.rest(away(errClosed))
		return c.result()
	}
	defer p.work.Done()
	if len(exchange) > maxShort || len(key) > maxShort {
		c.rest(unfit("the exchange %.20q… or the routing key %.20q… has more than %d bytes", exchange, key, maxShort))
	}
	contexts := make([]context.Context, len(messages))
	for i, msg := range messages {
		contexts[i] = msg.Context()
		var err error
		if c.publishings[i], err = newPublishing(msg, p.config.MaxPayload); err != nil {
			c.answer(i, err)
		}
	}
	c.end(contexts)
	p.publish(c, contexts)
	if p.config.Unroutable == Drop {
		if n := c.drop(); n > 0 {
			p.logger.Debug("Messages were dropped because no queue is bound to take them", watermill.LogFields{"exchange": exchange, "routing_key": key, "count": n})
		}
	}
	return c.result()
}

// begin counts a call, unless the Publisher is closed.
func (p *Publisher) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.work.Add(1)
	return true
}

func (p *Publisher) publish(c *call, contexts []context.Context) {
	select {
	case <-c.done:
		return
	default:
	}
	connection := func() (*channel, error) { return p.connection(c.done) }
	ch := p.obtain(c, contexts, connection, func(*channel) {}) // the next call uses it
	if ch == nil {
		return
	}
	p.run(ch, c, contexts)
	_, taken := c.collateral()
	p.singleOut(ch.session, c, contexts, taken)
}

// obtain returns the channel that get returns, unless all messages are answered: because get has failed, or because their
// contexts or the Publisher have ended first. get then goes on, and unused is given what it returns.
func (p *Publisher) obtain(c *call, contexts []context.Context, get func() (*channel, error), unused func(*channel)) *channel {
	obtained := make(chan *channel)
	p.work.Go(func() {
		ch, err := get()
		if err != nil {
			c.rest(away(err))
			return
		}
		select {
		case obtained <- ch:
		case <-c.done:
			unused(ch)
		}
	})
	ends := endings{c, contexts}
	for {
		select {
		case <-c.done:
			return nil
		case ch := <-obtained:
			c.end(contexts)
			return ch
		case <-ends.next():
			ends.answer()
		case <-p.closing:
			c.rest(away(errClosed))
		}
	}
}

// run sends a call and waits for its answers.
func (p *Publisher) run(ch *channel, c *call, contexts []context.Context) {
	s := ch.session
	p.work.Go(func() { ch.send(c) })
	timer := time.NewTimer(p.config.ConfirmTimeout)
	defer timer.Stop()
	ends := endings{c, contexts}
	for {
		select {
		case <-c.done:
			return
		case <-c.progress:
			timer.Reset(p.config.ConfirmTimeout)
		case <-ends.next():
			ends.answer()
		case <-p.closing:
			c.rest(away(errClosed))
		case <-timer.C:
			if !c.started.Load() && ch.usable() && s.isBlocked() == nil { // another call is being sent, with its own timer
				timer.Reset(p.config.ConfirmTimeout)
				continue
			}
			if err := s.isBlocked(); err != nil {
				c.rest(away(err))
				continue
			}
			c.rest(away(fmt.Errorf("RabbitMQ has confirmed nothing for %v", p.config.ConfirmTimeout)))
			s.abort()
		}
	}
}

// singleOut publishes the messages lost with a closed channel again, on a channel of their own and in smaller and smaller
// parts, until only those are left that make the broker close it.
func (p *Publisher) singleOut(s *session, c *call, contexts []context.Context, indexes []int) {
	if len(indexes) == 0 {
		return
	}
	part, its := newCall(c.exchange, c.key, make([]amqp091.Publishing, len(indexes))), make([]context.Context, len(indexes))
	for n, i := range indexes {
		part.publishings[n], its[n] = c.publishings[i], contexts[i]
	}
	open := func() (*channel, error) { return s.open(p.closing) }
	if ch := p.obtain(part, its, open, s.finish); ch != nil {
		p.run(ch, part, its)
		s.finish(ch)
	}
	cause, left := part.collateral()
	for n, i := range indexes {
		c.correct(i, part.errs[n])
	}
	for n := range left {
		left[n] = indexes[left[n]]
	}
	switch {
	case len(left) == 0:
	case len(left) == 1 || concernsTheRoute(cause):
		for _, i := range left {
			c.correct(i, blame(c.exchange, c.key, cause))
		}
	default:
		p.singleOut(s, c, contexts, left[:len(left)/2])
		p.singleOut(s, c, contexts, left[len(left)/2:])
	}
}

// connection returns the channel of the session, and reconnects if necessary, unless it is unwanted by then.
func (p *Publisher) connection(unwanted <-chan struct{}) (*channel, error) {
	p.connecting.Lock()
	defer p.connecting.Unlock()
	select {
	case <-p.closing:
		return nil, errClosed
	case <-unwanted:
		return nil, context.Canceled
	default:
	}
	if s := p.session; s != nil && s.usable() {
		if err := s.isBlocked(); err != nil {
			return nil, err
		}
		if s.main.usable() {
			return s.main, nil
		}
		if ch, err := s.open(p.closing); err == nil {
			s.main = ch
			return ch, nil
		}
	}
	if wait := time.Until(p.again); wait > 0 {
		return nil, fmt.Errorf("%w (the next attempt is in %v)", p.failure, wait.Round(time.Millisecond))
	}
	s, err := connect(p.config, p.closing, p.work.Go, p.logger)
	if err != nil {
		p.pause = min(max(2*p.pause, reconnectMin), reconnectMax)
		p.failure, p.again = err, time.Now().Add(p.pause)
		return nil, err
	}
	p.session, p.pause = s, 0
	return s.main, nil
}

// Close ends the connection. A waiting Publish returns; its messages may have been published. Close is idempotent, bounded
// and safe to call from many goroutines.
func (p *Publisher) Close() error {
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		close(p.closing)
	}
	p.mu.Unlock()

	p.connecting.Lock()
	s := p.session
	p.session = nil
	p.connecting.Unlock()
	if s != nil && s.usable() {
		s.close()
	}
	p.work.Wait()
	return nil
}
