// Package catalog is the event-service: it owns the events, publishes each new version of one, and keeps count of participants
// from what registration tells.
package catalog

import (
	"context"
	"database/sql"
	"embed"
	"encoding/json"
	"errors"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/examples/event-registration/database"
	"github.com/incursa/watermill-outbox/examples/event-registration/registration"
	"github.com/incursa/watermill-outbox/examples/event-registration/tracing"
)

//go:embed sql
var files embed.FS

const (
	// Topic carries the versions of events, each whole.
	Topic = "catalog.event"

	// Table is that of the catalog's own outbox.
	Table = "catalog_outbox"
)

// ErrCanceled is returned for an event that is canceled: it stays so.
var ErrCanceled = errors.New("the event is canceled")

// An Event is the catalog's, with what it knows of its participants.
type Event struct {
	registration.Snapshot
	Active   int   `json:"active"`
	Waiting  int   `json:"waiting"`
	Revision int64 `json:"revision"` // of the last message that was counted
}

// A Service is the catalog.
type Service struct {
	db         *database.Database
	statements *database.Statements
	outbox     *outbox.Outbox
}

// New returns the catalog, and creates its tables and its outbox.
func New(ctx context.Context, db *database.Database, logger watermill.LoggerAdapter) (*Service, error) {
	statements, err := database.Load(files, db)
	if err != nil {
		return nil, err
	}
	if err := outbox.Migrate(ctx, db.DB, outbox.MigrateConfig{Dialect: db.Dialect, Table: Table}); err != nil {
		return nil, err
	}
	queue, err := outbox.New(db.DB, outbox.Config{Dialect: db.Dialect, Table: Table}, logger)
	if err != nil {
		return nil, err
	}
	return &Service{db: db, statements: statements, outbox: queue}, statements.Migrate(ctx, db)
}

// Save writes an event and publishes it as event.published, event.updated, event.unpublished or event.canceled, in one
// transaction. Its version is given out here. It returns ErrCanceled.
func (s *Service) Save(ctx context.Context, snapshot registration.Snapshot) error {
	return outbox.InTx(ctx, s.db.DB, func(ctx context.Context, tx *sql.Tx) error {
		known, err := s.lock(ctx, tx, snapshot.EventID)
		if err != nil {
			return err
		}
		if known.Status == registration.EventCanceled {
			return ErrCanceled
		}
		snapshot.Version = known.Version + 1
		if err := snapshot.Validate(); err != nil {
			return err
		}
		_, err = s.statements.Exec(ctx, tx, "event_save", snapshot.EventID, snapshot.Version, snapshot.Title, snapshot.OrganizerID,
			snapshot.Status, snapshot.Capacity, snapshot.WaitlistLimit)
		if err != nil {
			return err
		}
		payload, err := json.Marshal(snapshot)
		if err != nil {
			return err
		}
		messages := []outbox.Message{{
			UUID: watermill.NewUUID(), Topic: Topic, StreamKey: snapshot.EventID, Payload: payload,
			Headers: map[string]string{registration.HeaderType: kind(known.Status, snapshot.Status)},
		}}
		tracing.Carry(ctx, messages)
		_, err = s.outbox.Enqueue(ctx, tx, messages...)
		return err
	})
}

func kind(before, after string) string {
	switch after {
	case registration.EventCanceled:
		return "event.canceled"
	case before:
		return "event.updated"
	case registration.EventOpen:
		return "event.published"
	}
	return "event.unpublished"
}

func (s *Service) lock(ctx context.Context, tx *sql.Tx, id string) (e Event, err error) {
	if _, err := s.statements.Exec(ctx, tx, "event_insert", id); err != nil {
		return e, err
	}
	return s.read(ctx, tx, id)
}

func (s *Service) read(ctx context.Context, q database.Queryer, id string) (e Event, err error) {
	_, err = s.statements.Row(ctx, q, "event_lock", []any{id}, []any{&e.EventID, &e.Version, &e.Title, &e.OrganizerID, &e.Status,
		&e.Capacity, &e.WaitlistLimit, &e.Active, &e.Waiting, &e.Revision})
	return e, err
}

// Get reads an event; one that is not known is empty.
func (s *Service) Get(ctx context.Context, id string) (Event, error) { return s.read(ctx, s.db, id) }

// Handle takes over the counters of a message of registration.
func (s *Service) Handle(ctx context.Context, tx *sql.Tx, _ *message.Message, m registration.Message) error {
	_, err := s.statements.Exec(ctx, tx, "event_count", m.EventID, m.Active, m.Waiting, m.Revision)
	return err
}
