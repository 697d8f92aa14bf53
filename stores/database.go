package stores

import (
	"fmt"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/field"
)

// A Database describes a store: where it is and what it is called. Equal Databases are the same store.
type Database struct {
	// ID names the store and is its key in a Router: a tenant's id, for example. It must not change while the store exists.
	// At most 255 UTF-16 units. Required.
	ID string

	// Dialect is the database: outbox.SQLServer{}, outbox.Postgres{} or outbox.SQLite{}. Required.
	Dialect outbox.Dialect

	// Driver and DSN are as for sql.Open. They may be empty if the store is made from an open *sql.DB, or DynamicConfig.Open needs
	// none. The DSN is never logged.
	Driver, DSN string

	// Schema and Table name the outbox. Default to dbo and Outbox on SQL Server,
	// public and outbox on PostgreSQL, and outbox on SQLite, where Schema must be empty.
	Schema, Table string

	// Weight is the store's share of the work under the strategy Fair. Defaults to 1.
	Weight int
}

// String is the store's id: the rest may hold secrets.
func (d Database) String() string { return d.ID }

// GoString is the same.
func (d Database) GoString() string { return fmt.Sprintf("stores.Database{ID: %q}", d.ID) }

func (d *Database) setDefaults() {
	field.Default(&d.Weight, 1)
}

// validate names the bad field. The outbox itself validates the names of schema and table.
func (d *Database) validate() error {
	if d.ID == "" {
		return field.Bad("Database.ID", "is empty; every store needs an identifier")
	}
	if err := field.Key("Database.ID", d.ID); err != nil {
		return err
	}
	if d.Dialect == nil {
		return field.Bad("Database.Dialect", "is nil; name the kind of database")
	}
	if d.Weight < 1 {
		return field.Bad("Database.Weight", "%d is less than 1", d.Weight)
	}
	return nil
}

// same reports whether a store of d can be kept for other: everything but the weight is equal.
func (d Database) same(other Database) bool {
	d.Weight = other.Weight
	return d == other
}
