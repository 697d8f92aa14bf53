// Package service puts the parts together: the API, its background work, the two services around it, and the broker between.
package service

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"golang.org/x/sync/errgroup"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/examples/event-registration/broker"
	"github.com/incursa/watermill-outbox/examples/event-registration/catalog"
	"github.com/incursa/watermill-outbox/examples/event-registration/database"
	"github.com/incursa/watermill-outbox/examples/event-registration/httpapi"
	"github.com/incursa/watermill-outbox/examples/event-registration/idempotency"
	"github.com/incursa/watermill-outbox/examples/event-registration/mail"
	"github.com/incursa/watermill-outbox/examples/event-registration/receiver"
	"github.com/incursa/watermill-outbox/examples/event-registration/registration"
	"github.com/incursa/watermill-outbox/forwarder"
	"github.com/incursa/watermill-outbox/middleware"
)

// Config configures a Service.
type Config struct {
	DSN      string // postgres://…, sqlserver://… or a file
	AMQP     string // RabbitMQ; empty for a broker in the process
	Mails    string // the folder of the mails
	Auth     httpapi.AuthConfig
	OfferFor time.Duration

	// DrainTimeout is how long stopping may take. Defaults to 20 s.
	DrainTimeout time.Duration
}

// A Service is all of it, ready to run.
type Service struct {
	config       Config
	db           *database.Database
	broker       *broker.Broker
	registration *registration.Service
	keys         *idempotency.Store
	catalog      *catalog.Service
	receivers    map[string]*receiver.Receiver // by queue of the broker
	tasks        *outbox.Subscriber
	logger       *slog.Logger
	log          watermill.LoggerAdapter
}

// Open opens the database and brings its tables up to date.
func Open(ctx context.Context, config Config, logger *slog.Logger) (s *Service, err error) {
	if config.DrainTimeout == 0 {
		config.DrainTimeout = 20 * time.Second
	}
	db, err := database.Open(config.DSN, 25)
	if err != nil {
		return nil, err
	}
	s = &Service{config: config, db: db, receivers: map[string]*receiver.Receiver{}, logger: logger, log: watermill.NewSlogLogger(logger)}
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return s, nil
}

func (s *Service) open(ctx context.Context) (err error) {
	if s.registration, err = registration.New(s.db, registration.Config{OfferFor: s.config.OfferFor}, s.log); err != nil {
		return err
	}
	if err := s.registration.Migrate(ctx); err != nil {
		return err
	}
	s.keys = idempotency.New(s.db, s.registration.Statements(), idempotency.Config{})
	if s.catalog, err = catalog.New(ctx, s.db, s.log); err != nil {
		return err
	}
	for queue, table := range map[string]string{"registration.events": "registration_inbox", "catalog.joins": "catalog_inbox", "mail.joins": "mail_inbox"} {
		if s.receivers[queue], err = receiver.New(ctx, s.db, queue, table, s.log); err != nil {
			return err
		}
	}
	s.tasks, err = outbox.NewSubscriber(s.db.DB, outbox.SubscriberConfig{
		Dialect: s.db.Dialect, HandlerLog: outbox.LogOff, UnhandledAfter: -1, // others are for the forwarder
		Janitor: outbox.JanitorConfig{Also: map[string]func(context.Context) (int, error){"idempotency keys": s.keys.Purge}},
	}, s.log)
	return err
}

// Close closes the database.
func (s *Service) Close() error { return s.db.Close() }

// Catalog is the event-service.
func (s *Service) Catalog() *catalog.Service { return s.catalog }

// Registration is the service itself.
func (s *Service) Registration() *registration.Service { return s.registration }

// Redrive gives the dead letters of all inboxes another chance, and returns how many there were, by queue.
func (s *Service) Redrive(ctx context.Context) (map[string]int, error) {
	out := map[string]int{}
	for queue, r := range s.receivers {
		n, err := r.Redrive(ctx)
		if err != nil {
			return out, err
		}
		out[queue] = n
	}
	return out, nil
}

// DeadLetters lists the dead letters of the inbox of a queue.
func (s *Service) DeadLetters(ctx context.Context, queue string) ([]outbox.Record, error) {
	return s.receivers[queue].DeadLetters(ctx)
}

// Run serves until ctx ends, and then stops everything within Config.DrainTimeout: requests are answered, handlers end.
func (s *Service) Run(ctx context.Context, listener net.Listener) (err error) {
	if err := os.MkdirAll(s.config.Mails, 0o700); err != nil {
		return fmt.Errorf("make the folder of the mails: %w", err)
	}
	s.broker = broker.InProcess(s.log)
	if s.config.AMQP != "" {
		if s.broker, err = broker.RabbitMQ(s.config.AMQP, s.log); err != nil {
			return err
		}
	}
	defer func() { err = errors.Join(err, s.broker.Close()) }()
	router, err := s.router()
	if err != nil {
		return err
	}
	forwarders, err := s.forwarders()
	if err != nil {
		return err
	}
	api, err := httpapi.New(s.registration, s.keys, httpapi.Config{
		Auth: s.config.Auth, Limiter: httpapi.NewBuckets(50, 100), Ready: s.db.PingContext,
	}, s.logger)
	if err != nil {
		return err
	}
	return s.run(ctx, listener, api, router, forwarders)
}

func (s *Service) run(ctx context.Context, listener net.Listener, api *httpapi.Server, router *message.Router, forwarders []*forwarder.Forwarder) error {
	server := api.Listen("")
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
		api.Drain()
		within, cancel := context.WithTimeout(background, s.config.DrainTimeout)
		defer cancel()
		err := server.Shutdown(within)
		closers := []io.Closer{s.tasks}
		for _, r := range s.receivers {
			closers = append(closers, r.Subscriber())
		}
		for _, f := range forwarders {
			closers = append(closers, f)
		}
		return errors.Join(err, outbox.Drain(within, router, closers...))
	})
	return group.Wait()
}

// router runs what the services receive, and what registration sends to itself.
func (s *Service) router() (*message.Router, error) {
	router, err := message.NewRouter(message.RouterConfig{}, s.log)
	if err != nil {
		return nil, err
	}
	router.AddMiddleware(middleware.Outcome)
	transaction, err := middleware.Transaction(s.db.DB, middleware.TransactionConfig{})
	if err != nil {
		return nil, err
	}
	s.registration.AddHandlers(router, s.tasks, transaction)
	err = errors.Join(
		receiver.AddTo(s.receivers["registration.events"], router, s.broker, s.apply),
		receiver.AddTo(s.receivers["catalog.joins"], router, s.broker, s.catalog.Handle),
		receiver.AddTo(s.receivers["mail.joins"], router, s.broker, mail.Service{Folder: s.config.Mails}.Handle),
	)
	return router, err
}

// apply takes over a version of an event.
func (s *Service) apply(ctx context.Context, tx *sql.Tx, _ *message.Message, snapshot registration.Snapshot) error {
	if err := snapshot.Validate(); err != nil {
		return outbox.Permanent(err)
	}
	_, err := s.registration.Apply(ctx, tx, snapshot)
	return err
}

// forwarders are two: each service has an outbox of its own.
func (s *Service) forwarders() (out []*forwarder.Forwarder, err error) {
	for topic, table := range map[string]string{registration.TopicJoin: "", catalog.Topic: catalog.Table} {
		f, err := forwarder.New(s.db.DB, s.broker.Publisher, forwarder.Config{
			Topics:     []string{topic},
			Subscriber: outbox.SubscriberConfig{Dialect: s.db.Dialect, Table: table, HandlerLog: outbox.LogOff, UnhandledAfter: -1},
		}, s.log)
		if err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	return out, nil
}
