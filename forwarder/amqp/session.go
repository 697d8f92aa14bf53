package amqp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	amqp091 "github.com/rabbitmq/amqp091-go"
)

// closeTimeout is how long the broker may take to close the connection.
const closeTimeout = 2 * time.Second

// A session is a connection, and the channel that publishes.
type session struct {
	config Config
	conn   *amqp091.Connection
	socket net.Conn // closing it interrupts everything that waits for the connection
	logger watermill.LoggerAdapter
	goes   func(func()) // runs what ends with the session

	main    *channel // guarded by the Publisher
	aborted atomic.Bool

	mu      sync.Mutex
	blocked string // why the broker takes nothing; empty while it does
}

// connect dials, declares the topology and opens a channel, within ConnectTimeout and until closing is closed.
func connect(config Config, closing <-chan struct{}, goes func(func()), logger watermill.LoggerAdapter) (*session, error) {
	ctx, cancel := contextUntil(closing, config.ConnectTimeout)
	defer cancel()
	s := &session{config: config, logger: logger, goes: goes}
	stop, err := s.dial(ctx)
	if err == nil {
		err = s.declare()
	}
	if err == nil {
		s.main, err = newChannel(s)
	}
	if err != nil || !stop() {
		return nil, s.failed(ctx, err)
	}
	blocked, ended := s.conn.NotifyBlocked(make(chan amqp091.Blocking, 1)), s.conn.NotifyClose(make(chan *amqp091.Error, 1))
	goes(func() { s.watch(blocked, ended) })
	logger.Info("Connected to RabbitMQ", watermill.LogFields{"broker": s.socket.RemoteAddr().String()})
	return s, nil
}

// failed cleans up and returns the reason, which is the context's if it ended first.
func (s *session) failed(ctx context.Context, err error) error {
	if s.socket != nil {
		s.abort()
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return fmt.Errorf("connect to RabbitMQ: %w", err)
}

var (
	errClosed         = errors.New("the publisher is closed")
	errConnectTimeout = errors.New("RabbitMQ does not answer")
)

// contextUntil ends after a time, or when a channel is closed.
func contextUntil(closing <-chan struct{}, timeout time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(context.Background())
	timer := time.AfterFunc(timeout, func() { cancel(errConnectTimeout) })
	go func() {
		select {
		case <-closing:
			cancel(errClosed)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { timer.Stop(); cancel(nil) }
}

// dial connects. The end of ctx ends the connection, until stop is called.
func (s *session) dial(ctx context.Context) (stop func() bool, err error) {
	properties := amqp091.NewConnectionProperties()
	properties.SetClientConnectionName(s.config.ConnectionName)
	tls := s.config.TLS
	if tls != nil {
		tls = tls.Clone() // the client sets the server's name
	}
	s.conn, err = amqp091.DialConfig(s.config.URL, amqp091.Config{
		Heartbeat: s.config.Heartbeat, TLSClientConfig: tls, Properties: properties,
		Dial: func(network, address string) (net.Conn, error) {
			socket, err := (&net.Dialer{}).DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			s.socket = socket
			stop = context.AfterFunc(ctx, s.abort)
			return socket, nil
		},
	})
	return stop, err
}

// declare declares exchanges, queues and bindings, all of them durable.
func (s *session) declare() error {
	c := &s.config
	if len(c.DeclareQueues)+len(c.Topology.Exchanges)+len(c.Topology.Queues)+len(c.Topology.Bindings) == 0 {
		return nil
	}
	ch, err := s.conn.Channel()
	if err != nil {
		return err
	}
	for _, e := range c.Topology.Exchanges {
		if err := ch.ExchangeDeclare(e.Name, e.Kind, true, false, false, false, e.Args); err != nil {
			return fmt.Errorf("declare the exchange %q: %w", e.Name, err)
		}
	}
	queues := c.Topology.Queues
	for _, name := range c.DeclareQueues {
		queues = append(queues[:len(queues):len(queues)], Queue{Name: name})
	}
	for _, q := range queues {
		if _, err := ch.QueueDeclare(q.Name, true, false, false, false, q.Args); err != nil {
			return fmt.Errorf("declare the queue %q: %w", q.Name, err)
		}
	}
	for _, b := range c.Topology.Bindings {
		if err := ch.QueueBind(b.Queue, b.RoutingKey, b.Exchange, false, b.Args); err != nil {
			return fmt.Errorf("bind the queue %q to the exchange %q: %w", b.Queue, b.Exchange, err)
		}
	}
	return ch.Close()
}

// watch lives as long as the connection.
func (s *session) watch(blocked <-chan amqp091.Blocking, ended <-chan *amqp091.Error) {
	for b := range blocked {
		reason := ""
		if b.Active {
			reason = "RabbitMQ has blocked the connection: " + b.Reason
			s.logger.Error("RabbitMQ has blocked the connection", errors.New(b.Reason), nil)
		} else {
			s.logger.Info("RabbitMQ has unblocked the connection", nil)
		}
		s.mu.Lock()
		s.blocked = reason
		s.mu.Unlock()
	}
	if cause := <-ended; cause != nil {
		s.logger.Info("The connection to RabbitMQ has ended", watermill.LogFields{"cause": cause.Error()})
	}
}

// isBlocked is nil while the broker takes messages.
func (s *session) isBlocked() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.blocked == "" {
		return nil
	}
	return errors.New(s.blocked)
}

func (s *session) usable() bool { return !s.aborted.Load() && !s.conn.IsClosed() }

// open opens another channel.
func (s *session) open(closing <-chan struct{}) (*channel, error) {
	ctx, cancel := contextUntil(closing, s.config.ConnectTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, s.abort)
	ch, err := newChannel(s)
	if err == nil && stop() {
		return ch, nil
	}
	s.abort() // its listener may not be running, and the connection is probably broken too
	return nil, errors.Join(context.Cause(ctx), err)
}

// finish closes a channel that open has opened.
func (s *session) finish(ch *channel) {
	late := time.AfterFunc(closeTimeout, s.abort)
	defer late.Stop()
	_ = ch.Close() // it may have ended already
}

// abort ends the connection at once. Whoever uses it is told; the client notices a little later.
func (s *session) abort() {
	s.aborted.Store(true)
	_ = s.socket.Close()
}

// close closes the connection properly. If the broker does not answer, for example because it has blocked the connection, it
// is aborted.
func (s *session) close() {
	late := time.AfterFunc(2*closeTimeout, s.abort)
	defer late.Stop()
	if err := s.conn.CloseDeadline(time.Now().Add(closeTimeout)); err != nil {
		s.abort()
		s.logger.Debug("RabbitMQ did not close the connection properly", watermill.LogFields{"err": err})
	}
}
