package service

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"golang.org/x/sync/errgroup"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/examples/event-registration/broker"
	"github.com/incursa/watermill-outbox/forwarder"
	"github.com/incursa/watermill-outbox/middleware"
)

// Run serves until ctx ends, and then stops everything within Config.DrainTimeout: requests are answered, handlers end.
func (s *Service) Run(ctx context.Context, listener net.Listener) (err error) {
	b := broker.InProcess(s.log)
	if s.config.AMQP != "" {
		if b, err = broker.RabbitMQ(s.config.AMQP, s.log); err != nil {
			return err
		}
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	router, err := s.router(b)
	if err != nil {
		return err
	}
	forwarders, err := s.forwarders(b)
	if err != nil {
		return err
	}
	return s.run(ctx, listener, router, forwarders)
}

// router runs what the services receive, and what registration sends to itself.
func (s *Service) router(b *broker.Broker) (*message.Router, error) {
	router, err := message.NewRouter(message.RouterConfig{}, s.log)
	if err != nil {
		return nil, err
	}
	router.AddMiddleware(middleware.Outcome, s.traces.Middleware)
	for _, p := range s.parts {
		if err := p.addHandlers(router, b); err != nil {
			return nil, err
		}
	}
	return router, nil
}

// forwarders are one for each service that sends: each has an outbox of its own.
func (s *Service) forwarders(b *broker.Broker) (map[string]*forwarder.Forwarder, error) {
	out := map[string]*forwarder.Forwarder{}
	for _, p := range s.parts {
		if p.topic == "" {
			continue
		}
		config := forwarder.Config{Topics: []string{p.topic}, RetryMax: 2 * time.Second, Subscriber: s.subscriber()}
		config.Subscriber.Table, config.Subscriber.UnhandledAfter = p.table, -1 // other topics are the service's own
		f, err := forwarder.New(s.db.DB, s.traces.Publisher(b.Publisher), config, s.log)
		if err != nil {
			return nil, err
		}
		out[string(p.name)] = f
	}
	return out, nil
}

func (s *Service) run(ctx context.Context, listener net.Listener, router *message.Router, forwarders map[string]*forwarder.Forwarder) (err error) {
	web, err := s.openConsole(forwarders)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, web.Close()) }()
	server := newServer(s.handler(web), s.logger)
	server.RegisterOnShutdown(func() { _ = web.Close() }) // pages that watch would hold it up
	background := context.WithoutCancel(ctx)
	group, failed := errgroup.WithContext(ctx)
	group.Go(func() error { return router.Run(background) })
	group.Go(func() error {
		select { // a broker in the process keeps nothing for those who subscribe later
		case <-router.Running():
		case <-failed.Done():
			return nil
		}
		running := errgroup.Group{}
		for _, f := range forwarders {
			running.Go(func() error { return f.Run(background) })
		}
		return running.Wait()
	})
	group.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	group.Go(func() error {
		<-failed.Done()
		return s.drain(background, server, router, forwarders)
	})
	return group.Wait()
}

// drain answers the requests that have begun, and then lets the handlers end.
func (s *Service) drain(ctx context.Context, server *http.Server, router *message.Router, forwarders map[string]*forwarder.Forwarder) error {
	if s.api != nil {
		s.api.Drain()
	}
	ctx, cancel := context.WithTimeout(ctx, s.config.DrainTimeout)
	defer cancel()
	err := server.Shutdown(ctx)
	var closers []io.Closer
	for _, p := range s.parts {
		closers = append(append(closers, p.closers...), p.receiver.Subscriber())
	}
	for _, f := range forwarders {
		closers = append(closers, f)
	}
	return errors.Join(err, outbox.Drain(ctx, router, closers...))
}

// newServer has limits on how slow a client may be.
func newServer(handler http.Handler, logger *slog.Logger) *http.Server {
	return &http.Server{
		Handler: handler, MaxHeaderBytes: 32 << 10,
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 20 * time.Second, IdleTimeout: time.Minute,
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
	}
}
