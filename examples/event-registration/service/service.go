// Package service puts the parts together: the three services, or one of them, with their background work and the broker between.
package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/examples/event-registration/broker"
	"github.com/incursa/watermill-outbox/examples/event-registration/catalog"
	"github.com/incursa/watermill-outbox/examples/event-registration/database"
	"github.com/incursa/watermill-outbox/examples/event-registration/httpapi"
	"github.com/incursa/watermill-outbox/examples/event-registration/idempotency"
	"github.com/incursa/watermill-outbox/examples/event-registration/metrics"
	"github.com/incursa/watermill-outbox/examples/event-registration/receiver"
	"github.com/incursa/watermill-outbox/examples/event-registration/registration"
	"github.com/incursa/watermill-outbox/examples/event-registration/shared"
	"github.com/incursa/watermill-outbox/examples/event-registration/tracing"
	"github.com/incursa/watermill-outbox/observe/otel"
)

// Config configures a Service.
type Config struct {
	// Parts are the services that run in this process. Defaults to all.
	Parts []Part

	DSN   string // postgres://…, sqlserver://… or a file
	AMQP  string // RabbitMQ; empty for a broker in the process, which needs all parts there
	Redis string // redis://…; empty for none
	Mails string // the folder of the mails
	Auth  httpapi.AuthConfig

	// OfferFor is that of registration.Config.
	OfferFor time.Duration

	// Rate is how many requests a second each user may make. Defaults to 50; twice as many at once.
	Rate float64

	// Lease is how long a message stays with a process that has died. Defaults to 30 s.
	Lease time.Duration

	// DrainTimeout is how long stopping may take. Defaults to 20 s.
	DrainTimeout time.Duration

	// TracerProvider follows requests to what they set off. Defaults to none.
	TracerProvider trace.TracerProvider
}

// A Service is one or more of the services, ready to run.
type Service struct {
	config  Config
	db      *database.Database
	redis   *shared.Redis // nil for none
	metrics *metrics.Metrics
	traces  *otel.Traces
	parts   []part
	logger  *slog.Logger
	log     watermill.LoggerAdapter

	registration *registration.Service
	keys         *idempotency.Store
	api          *httpapi.Server
	catalog      *catalog.Service
}

// Open opens the database and brings its tables up to date.
func Open(ctx context.Context, config Config, logger *slog.Logger) (s *Service, err error) {
	if len(config.Parts) == 0 {
		config.Parts = []Part{Join, Event, Email}
	}
	if config.AMQP == "" && len(config.Parts) < 3 {
		return nil, errors.New("service: a service alone needs RabbitMQ: Config.AMQP")
	}
	if config.Rate == 0 {
		config.Rate = 50
	}
	if config.Lease == 0 {
		config.Lease = 30 * time.Second
	}
	if config.DrainTimeout == 0 {
		config.DrainTimeout = 20 * time.Second
	}
	if config.TracerProvider == nil {
		config.TracerProvider = noop.NewTracerProvider()
	}
	s = &Service{config: config, logger: logger, log: watermill.NewSlogLogger(logger)}
	s.traces = otel.New(otel.Config{TracerProvider: config.TracerProvider, Propagator: tracing.Propagation, ContinueTrace: true})
	if s.metrics, err = metrics.New(); err != nil {
		return nil, err
	}
	if s.db, err = database.Open(config.DSN, 25); err != nil {
		return nil, err
	}
	for _, name := range config.Parts {
		p, err := s.open(ctx, name)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("open the %s: %w", name, err), s.Close())
		}
		s.parts = append(s.parts, p)
	}
	return s, nil
}

// openAPI makes the API, and what limits and caches for it.
func (s *Service) openAPI() (err error) {
	s.keys = idempotency.New(s.db, s.registration.Statements(), idempotency.Config{})
	rate, burst := s.config.Rate, 2*s.config.Rate
	config := httpapi.Config{Auth: s.config.Auth, Limiter: httpapi.NewBuckets(rate, burst), Ready: s.db.PingContext, Metrics: s.metrics}
	if s.config.Redis != "" {
		s.redis, err = shared.Open(s.config.Redis, shared.Config{Rate: rate, Burst: burst, Fallback: config.Limiter, Metrics: s.metrics})
		if err != nil {
			return err
		}
		config.Limiter, config.Cache = s.redis, s.redis
	}
	s.api, err = httpapi.New(s.registration, s.keys, config, s.logger)
	return err
}

// subscriber is the configuration of all that take messages from an outbox or an inbox.
func (s *Service) subscriber() outbox.SubscriberConfig {
	return outbox.SubscriberConfig{Dialect: s.db.Dialect, LeaseDuration: s.config.Lease, HandlerLog: outbox.LogOff, Hooks: s.metrics.Hooks()}
}

// newReceiver returns the receiver of a queue, with its inbox in a table.
func (s *Service) newReceiver(ctx context.Context, queue, table string) (*receiver.Receiver, error) {
	config := s.subscriber()
	config.Table = table
	return receiver.New(ctx, s.db, queue, config, s.metrics, s.log)
}

// Close closes the connections.
func (s *Service) Close() error {
	err := s.db.Close()
	if s.redis != nil {
		err = errors.Join(err, s.redis.Close())
	}
	return err
}

// Catalog is the event-service, if it is here.
func (s *Service) Catalog() *catalog.Service { return s.catalog }

// Registration is the join-service, if it is here.
func (s *Service) Registration() *registration.Service { return s.registration }

// Redrive gives the dead letters of the services here another chance, in their inboxes and at the broker, and returns how many
// there were, by queue.
func (s *Service) Redrive(ctx context.Context) (map[string]int, error) {
	out := map[string]int{}
	for _, p := range s.parts {
		n, err := p.receiver.Redrive(ctx)
		if err != nil {
			return out, err
		}
		out[p.receiver.Queue()] = n
		if s.config.AMQP == "" {
			continue
		}
		n, err = broker.Redrive(ctx, s.config.AMQP, p.receiver.Queue())
		out[broker.DeadLetters(p.receiver.Queue())] = n
		if err != nil {
			return out, err
		}
	}
	return out, nil
}

// DeadLetters lists the dead letters of the inbox of a queue.
func (s *Service) DeadLetters(ctx context.Context, queue string) ([]outbox.Record, error) {
	for _, p := range s.parts {
		if p.receiver.Queue() == queue {
			return p.receiver.DeadLetters(ctx)
		}
	}
	return nil, fmt.Errorf("the service of %s is not here", queue)
}
