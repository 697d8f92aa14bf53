package stores

import (
	"context"
	"database/sql"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/field"
)

// A Discovery finds the databases.
type Discovery interface {
	// Databases returns all of them, in the order in which strategies see the stores. A store that is left out is removed.
	Databases(ctx context.Context) ([]Database, error)
}

// DiscoveryFunc is a function that is a Discovery.
type DiscoveryFunc func(ctx context.Context) ([]Database, error)

// Databases implements Discovery.
func (f DiscoveryFunc) Databases(ctx context.Context) ([]Database, error) { return f(ctx) }

// DynamicConfig configures a Dynamic.
type DynamicConfig struct {
	// RefreshInterval is how often the Discovery is asked. Defaults to 5 min.
	RefreshInterval time.Duration

	// RefreshTimeout limits one call of the Discovery. Defaults to 30 s.
	RefreshTimeout time.Duration

	// RetryInterval is the pause after a Discovery that failed. It doubles each time, up to RefreshInterval.
	// Defaults to 5 s, or to RefreshInterval if that is less.
	RetryInterval time.Duration

	// Open opens the pool of a database; it need not connect. The pool is closed with its store. Defaults to sql.Open, or
	// outbox.OpenSQLite on SQLite, with the limits below, which do not apply to a pool that you open.
	Open func(Database) (*sql.DB, error)

	// MaxOpenConns is the most connections to a store. Defaults to 4, which a Subscriber can use by itself; allow more for
	// handlers.
	MaxOpenConns int

	// MaxIdleConns is the most idle connections to a store that are kept, and ConnMaxIdleTime for how long. Default to 1 and
	// 1 min.
	MaxIdleConns    int
	ConnMaxIdleTime time.Duration

	// Outbox configures the outbox of each store; Dialect, Schema, Table and Store are those of the database.
	// Defaults to the defaults of outbox.Config.
	Outbox outbox.Config
}

func (c *DynamicConfig) setDefaults() {
	field.Default(&c.RefreshInterval, 5*time.Minute)
	field.Default(&c.RefreshTimeout, 30*time.Second)
	field.Default(&c.RetryInterval, min(5*time.Second, c.RefreshInterval))
	field.Default(&c.MaxOpenConns, 4)
	field.Default(&c.MaxIdleConns, 1)
	field.Default(&c.ConnMaxIdleTime, time.Minute)
	if c.Open == nil {
		c.Open = c.open
	}
}

func (c *DynamicConfig) validate() error {
	switch {
	case c.RefreshInterval < 0:
		return field.Bad("DynamicConfig.RefreshInterval", "is negative")
	case c.RefreshTimeout < 0:
		return field.Bad("DynamicConfig.RefreshTimeout", "is negative")
	case c.RetryInterval < 0 || c.RetryInterval > c.RefreshInterval:
		return field.Bad("DynamicConfig.RetryInterval", "%v is not between 0 and RefreshInterval, %v", c.RetryInterval, c.RefreshInterval)
	case c.MaxOpenConns < 1:
		return field.Bad("DynamicConfig.MaxOpenConns", "%d is less than 1", c.MaxOpenConns)
	case c.MaxIdleConns < 0:
		return field.Bad("DynamicConfig.MaxIdleConns", "is negative")
	case c.ConnMaxIdleTime < 0:
		return field.Bad("DynamicConfig.ConnMaxIdleTime", "is negative")
	}
	_, err := New(trial.db, trial.database, c.Outbox, nil)
	return field.Rename("Config", "DynamicConfig.Outbox", err)
}

func (c *DynamicConfig) open(d Database) (*sql.DB, error) {
	if d.Driver == "" {
		return nil, field.Bad("Database.Driver", "is empty; name the driver as for sql.Open, or open the database in DynamicConfig.Open")
	}
	open := sql.Open
	if _, ok := d.Dialect.(outbox.SQLite); ok {
		open = outbox.OpenSQLite
	}
	db, err := open(d.Driver, d.DSN)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(c.MaxOpenConns)
	db.SetMaxIdleConns(c.MaxIdleConns)
	db.SetConnMaxIdleTime(c.ConnMaxIdleTime)
	return db, nil
}
