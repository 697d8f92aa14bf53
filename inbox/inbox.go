package inbox

import (
	"context"
	"database/sql"
	"strings"

	"github.com/ThreeDotsLabs/watermill"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/field"
	"github.com/incursa/watermill-outbox/internal/seam"
)

// Config describes an inbox to all its parts.
type Config struct {
	// Dialect is the database: outbox.SQLServer{}, outbox.Postgres{} or outbox.SQLite{}. Required.
	Dialect outbox.Dialect

	// Schema is the database schema of the inbox. Defaults to dbo on SQL Server and public on PostgreSQL; SQLite has none.
	Schema string

	// Table is the name of the queue's table; all other objects are named after it. It must not be the table of an outbox.
	// Defaults to Inbox on SQL Server, and to inbox elsewhere.
	Table string

	// Store names this inbox among several, as in outbox.Config. Defaults to none.
	Store string

	// WorkerName is recorded with the messages that Queue ends; at most 100 characters. Defaults to the host's name and the
	// process id.
	WorkerName string

	// WithJoins makes Migrate create the tables of package join for the inbox too. Defaults to false.
	WithJoins bool

	// Hooks are called as things happen in the queue. Defaults to none.
	Hooks outbox.Hooks
}

func (c *Config) setDefaults() {
	c.Table = tableOr(c.Table, c.Dialect)
}

// tableOr is the given name of the table, or the default.
func tableOr(table string, dialect outbox.Dialect) string {
	if table != "" || dialect == nil {
		return table
	}
	return strings.NewReplacer("Outbox", "Inbox", "outbox", "inbox").Replace(dialect.Traits().Table)
}

func (c Config) migration() outbox.MigrateConfig {
	c.setDefaults()
	return outbox.MigrateConfig{Dialect: c.Dialect, Schema: c.Schema, Table: c.Table, WithoutJoins: !c.WithJoins, WithInbox: true}
}

// Migrate creates or updates the tables, indexes and procedures of an inbox. It works like outbox.Migrate and returns the
// same errors.
func Migrate(ctx context.Context, db *sql.DB, config Config) error {
	return named(outbox.Migrate(ctx, db, config.migration()))
}

// MigrationSQL returns the same as a script, like outbox.MigrationSQL.
func MigrationSQL(config Config) (string, error) {
	script, err := outbox.MigrationSQL(config.migration())
	return script, named(err)
}

// RoleSQL returns a script that creates a role with only the rights that receivers and workers need, named after schema and
// table: dbo_Inbox_Role, or public_inbox_role. Run it after Migrate; running it again changes nothing.
func RoleSQL(config Config) (string, error) {
	script, err := outbox.RoleSQL(config.migration())
	return script, named(err)
}

// Check compares the database with what this version of the library needs, like outbox.Check.
func Check(ctx context.Context, db *sql.DB, config Config) error {
	return named(outbox.Check(ctx, db, config.migration()))
}

// named names a bad field as it is called here.
func named(err error) error { return field.Rename("MigrateConfig", "Config", err) }

// An Inbox remembers which messages have been received, and has a queue for those that are handled later. It is safe for
// concurrent use; it holds no connection and need not be closed.
type Inbox struct {
	db     *sql.DB
	queue  *outbox.Outbox
	inside seam.Operations // of the queue
	logger watermill.LoggerAdapter
}

// New returns the inbox in the table that config names. It does not touch the database. A nil logger logs nothing. It
// returns an error if db is nil, or an *outbox.FieldError that names a bad field.
func New(db *sql.DB, config Config, logger watermill.LoggerAdapter) (*Inbox, error) {
	config.setDefaults()
	queue, err := outbox.New(db, outbox.Config{
		Dialect: config.Dialect, Schema: config.Schema, Table: config.Table, Store: config.Store,
		WorkerName: config.WorkerName, Hooks: config.Hooks}, logger)
	if err != nil {
		return nil, err
	}
	inside := seam.Outbox(queue)
	return &Inbox{db: db, queue: queue, inside: inside, logger: inside.Logger()}, nil
}

// DB is the database handle passed to New.
func (in *Inbox) DB() *sql.DB { return in.db }

// Queue is the queue of enqueued messages as plain calls: Claim, Settle, Ack, Abandon, Fail, ReapExpired. Its Purge leaves
// the entries; purge failed messages through the Inbox, or their entries will count as done.
func (in *Inbox) Queue() *outbox.Outbox { return in.queue }

// NewSubscriber returns a Watermill subscriber over the queue of an inbox. Its topics are the names of handlers, unless
// Received says otherwise. SubscriberConfig.Table defaults to that of Config.
func NewSubscriber(db *sql.DB, config outbox.SubscriberConfig, logger watermill.LoggerAdapter) (*outbox.Subscriber, error) {
	config.Table = tableOr(config.Table, config.Dialect)
	return outbox.NewSubscriber(db, config, logger)
}
