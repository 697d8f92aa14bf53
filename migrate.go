package outbox

import (
	"context"
	"database/sql"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/dialect"
	"github.com/incursa/watermill-outbox/internal/field"
	"github.com/incursa/watermill-outbox/internal/install"
)

// MigrateConfig says which outbox to install.
type MigrateConfig struct {
	// Dialect is the database: SQLServer{}, Postgres{} or SQLite{}. Required.
	Dialect Dialect

	// Schema and Table name the outbox. Default to dbo and Outbox on SQL Server,
	// public and outbox on PostgreSQL, and outbox on SQLite, where Schema must be empty. A schema that is
	// missing is created.
	Schema, Table string

	// Role is the name of the role that RoleSQL creates. Defaults to the schema, the table and Role: dbo_Outbox_Role, or
	// public_outbox_role.
	Role string

	// WithoutJoins leaves out the tables of package join. Defaults to false.
	WithoutJoins bool

	// WithInbox adds the table of package inbox. Defaults to false; inbox.Migrate sets it.
	WithInbox bool

	// Logger gets a line from Check for each setting of the database or its connections under which the last commits may be lost
	// when the machine stops. These are not errors, because they may be deliberate. Defaults to none.
	Logger watermill.LoggerAdapter
}

// Migrate creates or updates the tables, indexes and procedures of an outbox. It runs in one transaction under its own lock,
// so any number of processes may call it at once, and it changes nothing if everything is up to date. Objects that were
// dropped are created again, without their contents. Nothing else in this module creates anything.
//
// Migrate only goes forward: if a newer version of the library has migrated the database, it returns ErrSchemaNewer and
// changes nothing. It returns ErrSchema if it cannot repair a table, or if the tables are of an earlier layout, and a
// *FieldError that names a bad field.
func Migrate(ctx context.Context, db *sql.DB, config MigrateConfig) error {
	s, err := config.scriptFor(db)
	if err != nil {
		return err
	}
	return s.Run(ctx, db)
}

// Check compares the database with what this version of the library needs, and changes nothing. It returns nil if all is
// well, and else an ErrSchema that names, one per line, each missing object, each migration that has not run, and each
// unsuitable setting, such as a compatibility level under 130 or SQLite without WAL. It says so in one line if nothing is
// installed, and if only settings do not fit, which Migrate does not change. If a newer version of the library has
// migrated the database, the error is an ErrSchemaNewer, too. A *FieldError names a bad field, and an error of the database
// is returned as it is. Settings that are less durable than the defaults are logged to MigrateConfig.Logger. Call Check when a
// service starts.
func Check(ctx context.Context, db *sql.DB, config MigrateConfig) error {
	s, err := config.scriptFor(db)
	if err != nil {
		return err
	}
	return s.Check(ctx, db)
}

// MigrationSQL returns the same as a script, for your own migration tool or your DBA: idempotent, one transaction or part
// of yours, and with GO between batches for SQL Server. Unlike Migrate, the script does not check which version migrated the
// database before. It returns a *FieldError that names a bad field.
func MigrationSQL(config MigrateConfig) (string, error) {
	s, err := config.script()
	if err != nil {
		return "", err
	}
	return s.Print(), nil
}

// RoleSQL returns a script that creates a role with only the rights that publishers and workers need.
// Run it after Migrate; running it again changes nothing. It returns a *FieldError that names a bad field.
func RoleSQL(config MigrateConfig) (string, error) {
	s, err := config.script()
	if err != nil {
		return "", err
	}
	role, err := s.Role()
	return role, field.In("MigrateConfig", err)
}

// scriptFor is script for a database.
func (c MigrateConfig) scriptFor(db *sql.DB) (*install.Script, error) {
	if db == nil {
		return nil, base.ErrNilDB
	}
	s, err := c.script()
	if err != nil {
		return nil, err
	}
	return s, field.Problem("MigrateConfig.Dialect", dialect.MismatchedDriver(c.Dialect, db))
}

func (c MigrateConfig) script() (*install.Script, error) {
	s, err := install.New(install.Config(c))
	return s, field.In("MigrateConfig", err)
}
