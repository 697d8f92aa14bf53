package registration

import (
	"context"
	"database/sql"
	"embed"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/examples/event-registration/database"
	"github.com/incursa/watermill-outbox/join"
)

//go:embed sql
var files embed.FS

// Config configures a Service.
type Config struct {
	// OfferFor is how long a seat is held for somebody promoted from the waitlist, who takes it by joining again.
	// Defaults to 0: a promotion needs no answer.
	OfferFor time.Duration

	// Hooks are those of the outbox. Defaults to none.
	Hooks outbox.Hooks
}

// A Service runs in the caller's transactions: its effects and its messages are committed with whatever else is in them.
type Service struct {
	db         *database.Database
	statements *database.Statements
	outbox     *outbox.Outbox
	joins      *join.Coordinator
	config     Config
}

// New returns the service on a database.
func New(db *database.Database, config Config, logger watermill.LoggerAdapter) (*Service, error) {
	statements, err := database.Load(files, db)
	if err != nil {
		return nil, err
	}
	queue, err := outbox.New(db.DB, outbox.Config{Dialect: db.Dialect, Hooks: config.Hooks}, logger)
	if err != nil {
		return nil, err
	}
	joins, err := join.NewCoordinator(db.DB, join.Config{Dialect: db.Dialect, Hooks: config.Hooks}, logger)
	if err != nil {
		return nil, err
	}
	return &Service{db: db, statements: statements, outbox: queue, joins: joins, config: config}, nil
}

// Migrate creates the tables of the service and of its outbox.
func (s *Service) Migrate(ctx context.Context) error {
	if err := outbox.Migrate(ctx, s.db.DB, outbox.MigrateConfig{Dialect: s.db.Dialect}); err != nil {
		return err
	}
	return s.statements.Migrate(ctx, s.db)
}

// Joins is the coordinator whose wait handler sends what follows a canceled event.
func (s *Service) Joins() *join.Coordinator { return s.joins }

// Outbox is the queue of the service's messages.
func (s *Service) Outbox() *outbox.Outbox { return s.outbox }

// Statements are the service's SQL, also used by the packages that keep their rows beside its own.
func (s *Service) Statements() *database.Statements { return s.statements }

func (s *Service) readEvent(ctx context.Context, q database.Queryer, statement, id string) (event Event, now int64, found bool, err error) {
	found, err = s.statements.Row(ctx, q, statement, []any{id}, append(event.columns(), &now))
	return event, now, found, err
}

func (e *Event) columns() []any {
	return []any{&e.ID, &e.Version, &e.Title, &e.OrganizerID, &e.Status, &e.Capacity, &e.WaitlistLimit,
		&e.Active, &e.Waiting, &e.LastNumber, &e.Revision}
}

func (e *Event) values() []any {
	return []any{e.ID, e.Version, e.Title, e.OrganizerID, e.Status, e.Capacity, e.WaitlistLimit,
		e.Active, e.Waiting, e.LastNumber, e.Revision}
}

func (s *Service) readRegistration(ctx context.Context, q database.Queryer, event, user string) (r Registration, found bool, err error) {
	found, err = s.statements.Row(ctx, q, "registration_read", []any{event, user}, r.columns())
	return r, found, err
}

func (r *Registration) columns() []any {
	return []any{&r.EventID, &r.UserID, &r.Status, &r.Number, &r.CreatedAt, &r.UpdatedAt, &r.OfferUntil}
}

func (r *Registration) values() []any {
	return []any{r.EventID, r.UserID, string(r.Status), r.Number, r.CreatedAt, r.UpdatedAt, r.OfferUntil}
}

func (s *Service) readRegistrations(ctx context.Context, q database.Queryer, statement string, args ...any) (out []Registration, err error) {
	err = s.statements.Rows(ctx, q, statement, args, func(rows *sql.Rows) error {
		var r Registration
		if err := rows.Scan(r.columns()...); err != nil {
			return err
		}
		out = append(out, r)
		return nil
	})
	return out, err
}
