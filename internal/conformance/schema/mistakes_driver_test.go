package schema_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"testing"

	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/stretchr/testify/require"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/eventstore"
	"github.com/incursa/watermill-outbox/fanout"
	"github.com/incursa/watermill-outbox/forwarder"
	"github.com/incursa/watermill-outbox/inbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/join"
	"github.com/incursa/watermill-outbox/stores"
)

// errTouched is what these databases answer: nobody is to ask them.
var errTouched = errors.New("the database was touched")

// A closedConnector is that of a driver whose database must not be asked.
type closedConnector struct{ driver driver.Driver }

func (c closedConnector) Connect(context.Context) (driver.Conn, error) { return nil, errTouched }
func (c closedConnector) Driver() driver.Driver                        { return c.driver }

// A wrapped driver is one of which nothing is known, like those that trace statements.
type wrapped struct{ driver.Driver }

// closedDB is a database of a driver, which the test closes.
func closedDB(t *testing.T, name string, wrap func(driver.Driver) driver.Driver) *sql.DB {
	t.Helper()
	db, err := sql.Open(name, "")
	require.NoError(t, err)
	require.NoError(t, db.Close())
	db = sql.OpenDB(closedConnector{wrap(db.Driver())})
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// constructors make everything that has a Dialect, by the name of its field.
func constructors(t *testing.T, db *sql.DB, d outbox.Dialect) map[string][]func() error {
	t.Helper()
	pubsub := gochannel.NewGoChannel(gochannel.Config{}, nil)
	t.Cleanup(func() { require.NoError(t, pubsub.Close()) })
	to := []fanout.Policy{suite.ToTopics("p", "copy")}
	return map[string][]func() error{
		"Config.Dialect": {
			func() error { _, err := outbox.New(db, outbox.Config{Dialect: d}, nil); return err },
			func() error { _, err := eventstore.New(db, eventstore.Config{Dialect: d}, nil); return err },
			func() error { _, err := join.NewCoordinator(db, join.Config{Dialect: d}, nil); return err },
			func() error { _, err := inbox.New(db, inbox.Config{Dialect: d}, nil); return err },
			func() error {
				_, err := fanout.NewDispatcher(db, fanout.Config{Dialect: d, Policies: to}, nil)
				return err
			},
		},
		"Database.Dialect": {
			func() error {
				_, err := stores.New(db, stores.Database{ID: "a", Dialect: d}, outbox.Config{}, nil)
				return err
			},
		},
		"PublisherConfig.Dialect": {
			func() error { _, err := outbox.NewPublisher(db, outbox.PublisherConfig{Dialect: d}, nil); return err },
		},
		"SubscriberConfig.Dialect": {
			func() error {
				_, err := outbox.NewSubscriber(db, outbox.SubscriberConfig{Dialect: d}, nil)
				return err
			},
			func() error { _, err := inbox.NewSubscriber(db, outbox.SubscriberConfig{Dialect: d}, nil); return err },
		},
		"Config.Subscriber.Dialect": {
			func() error {
				_, err := forwarder.New(db, pubsub, forwarder.Config{
					Topics: []string{"orders"}, Subscriber: outbox.SubscriberConfig{Dialect: d}}, nil)
				return err
			},
		},
		"SequencerConfig.Dialect": {
			func() error { _, err := outbox.NewSequencer(db, outbox.SequencerConfig{Dialect: d}, nil); return err },
		},
	}
}

// driverNames are those of the dialects.
var driverNames = map[string]outbox.Dialect{"pgx": outbox.Postgres{}, "sqlserver": outbox.SQLServer{}, "sqlite": outbox.SQLite{}}

func TestTrap_AConstructorRefusesTheDialectOfAnotherDatabase(t *testing.T) {
	for name, own := range driverNames {
		db := closedDB(t, name, func(d driver.Driver) driver.Driver { return d })
		unknown := closedDB(t, name, func(d driver.Driver) driver.Driver { return wrapped{d} })
		for _, d := range dialects {
			refused := fmt.Sprintf("is that of %s, but the driver is for %s; ", d.Name(), own.Name())
			for field, calls := range constructors(t, db, d) {
				for _, call := range calls {
					err := call()
					if d.Name() == own.Name() {
						require.NoError(t, err, "%s on %s", field, name)
						continue
					}
					var bad *outbox.FieldError
					require.ErrorAs(t, err, &bad, "%s on %s", field, name)
					require.Equal(t, field, bad.Field)
					require.Contains(t, bad.Reason, refused)
				}
			}
			for _, calls := range constructors(t, unknown, d) {
				for _, call := range calls {
					require.NoError(t, call(), "of a driver that is not known nothing is certain")
				}
			}
			if d.Name() == own.Name() {
				continue
			}
			for field, err := range map[string]error{
				"MigrateConfig.Dialect": errors.Join(outbox.Migrate(t.Context(), db, outbox.MigrateConfig{Dialect: d}),
					outbox.Check(t.Context(), db, outbox.MigrateConfig{Dialect: d})),
				"Config.Dialect": errors.Join(inbox.Migrate(t.Context(), db, inbox.Config{Dialect: d}),
					inbox.Check(t.Context(), db, inbox.Config{Dialect: d})),
			} {
				require.NotErrorIs(t, err, errTouched)
				require.NotErrorIs(t, err, outbox.ErrSchema)
				require.Regexp(t, "(?s)(outbox: "+field+": "+refused+".*){2}", err.Error())
			}
		}
	}
}

// With a driver that is not known, the first call tells.
func TestTheDialectOfAnotherDatabaseIsNamed(t *testing.T) {
	forEachEmpty(t, func(t *testing.T, f *fixture) {
		db := f.wrapped()
		for _, d := range dialects {
			if d.Name() == f.Config.Dialect.Name() {
				continue
			}
			wrong, err := outbox.New(db, outbox.Config{Dialect: d}, nil)
			f.NoError(err)
			_, err = wrong.Enqueue(f.Context(), db, outbox.Message{Topic: "orders"})
			config := outbox.MigrateConfig{Dialect: d}
			for call, err := range map[string]error{
				"enqueue": err,
				"migrate": outbox.Migrate(f.Context(), db, config),
				"check":   outbox.Check(f.Context(), db, config),
			} {
				f.ErrorContains(err, "the Dialect is that of "+d.Name()+", but the driver is for "+f.Config.Dialect.Name(), call)
				f.NotErrorIs(err, outbox.ErrSchema, call)
			}
		}
	})
}

// wrapped is the fixture's database through a driver that is not known.
func (f *fixture) wrapped() *sql.DB {
	f.T.Helper()
	base := f.DB.Driver()
	connector := wrappedConnector{driver: wrapped{base}, dsn: f.DB.DSN}
	db := sql.OpenDB(connector)
	f.T.Cleanup(func() { f.NoError(db.Close()) })
	return db
}

type wrappedConnector struct {
	driver wrapped
	dsn    string
}

func (c wrappedConnector) Connect(context.Context) (driver.Conn, error) { return c.driver.Open(c.dsn) }
func (c wrappedConnector) Driver() driver.Driver                        { return c.driver }
