package service

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"os"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/examples/event-registration/broker"
	"github.com/incursa/watermill-outbox/examples/event-registration/catalog"
	"github.com/incursa/watermill-outbox/examples/event-registration/mail"
	"github.com/incursa/watermill-outbox/examples/event-registration/receiver"
	"github.com/incursa/watermill-outbox/examples/event-registration/registration"
	"github.com/incursa/watermill-outbox/middleware"
)

// A Part is one of the services. Each can run in processes of its own, on a database of its own.
type Part string

// The services.
const (
	Join  Part = "join-service"  // who has a seat; the API
	Event Part = "event-service" // the events, and how many take part
	Email Part = "email-service" // tells people
)

// A part is what the process runs for a service: it takes messages from its queue and sends those of its outbox.
type part struct {
	name        Part
	receiver    *receiver.Receiver
	addHandlers func(*message.Router, *broker.Broker) error
	topic       string // what a forwarder takes from the outbox; empty if the service sends nothing
	table       string // of the outbox
	inbox       string // its table
	closers     []io.Closer
}

func (s *Service) open(ctx context.Context, name Part) (part, error) {
	switch name {
	case Join:
		return s.openJoin(ctx)
	case Event:
		return s.openEvent(ctx)
	case Email:
		return s.openEmail(ctx)
	}
	return part{}, fmt.Errorf("%q is no service", name)
}

func (s *Service) openJoin(ctx context.Context) (p part, err error) {
	if s.registration, err = registration.New(s.db, registration.Config{OfferFor: s.config.OfferFor, Hooks: s.metrics.Hooks()}, s.log); err != nil {
		return p, err
	}
	if err := s.registration.Migrate(ctx); err != nil {
		return p, err
	}
	if err := s.openAPI(); err != nil {
		return p, err
	}
	config := s.subscriber()
	config.UnhandledAfter = -1 // other topics are for the forwarder
	config.Janitor.Also = map[string]func(context.Context) (int, error){"idempotency keys": s.keys.Purge}
	tasks, err := outbox.NewSubscriber(s.db.DB, config, s.log)
	if err != nil {
		return p, err
	}
	p = part{name: Join, topic: registration.TopicJoin, inbox: "registration_inbox", closers: []io.Closer{tasks}}
	p.addHandlers = func(router *message.Router, b *broker.Broker) error {
		transaction, err := middleware.Transaction(s.db.DB, middleware.TransactionConfig{})
		if err != nil {
			return err
		}
		s.registration.AddHandlers(router, tasks, transaction)
		return receiver.AddTo(p.receiver, router, b, s.apply)
	}
	p.receiver, err = s.newReceiver(ctx, "registration.events", p.inbox)
	return p, err
}

// apply takes over a version of an event.
func (s *Service) apply(ctx context.Context, tx *sql.Tx, _ *message.Message, snapshot registration.Snapshot) error {
	if err := snapshot.Validate(); err != nil {
		return outbox.Permanent(err)
	}
	_, err := s.registration.Apply(ctx, tx, snapshot)
	return err
}

func (s *Service) openEvent(ctx context.Context) (p part, err error) {
	if s.catalog, err = catalog.New(ctx, s.db, s.log); err != nil {
		return p, err
	}
	p = part{name: Event, topic: catalog.Topic, table: catalog.Table, inbox: "catalog_inbox"}
	p.addHandlers = func(router *message.Router, b *broker.Broker) error {
		return receiver.AddTo(p.receiver, router, b, s.catalog.Handle)
	}
	p.receiver, err = s.newReceiver(ctx, "catalog.joins", p.inbox)
	return p, err
}

func (s *Service) openEmail(ctx context.Context) (p part, err error) {
	if err := os.MkdirAll(s.config.Mails, 0o700); err != nil {
		return p, fmt.Errorf("make the folder of the mails: %w", err)
	}
	p = part{name: Email, inbox: "mail_inbox"}
	p.addHandlers = func(router *message.Router, b *broker.Broker) error {
		return receiver.AddTo(p.receiver, router, b, mail.Service{Folder: s.config.Mails}.Handle)
	}
	p.receiver, err = s.newReceiver(ctx, "mail.joins", p.inbox)
	return p, err
}
