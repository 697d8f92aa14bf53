// Package kept opens databases whose connections keep statements compiled. SQLite's driver compiles each statement at every
// call; the drivers of other databases keep them by themselves.
package kept

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
)

// Open opens a database as sql.Open does. Its connections keep what runs under a context of Keep.
func Open(driverName, dsn string) (*sql.DB, error) {
	named, err := sql.Open(driverName, dsn) // connects to nothing: it only finds the driver
	if err != nil {
		return nil, err
	}
	base, err := connectorOf(named.Driver(), dsn)
	if err = errors.Join(err, named.Close()); err != nil {
		return nil, err
	}
	return sql.OpenDB(Connector(base)), nil
}

func connectorOf(d driver.Driver, dsn string) (driver.Connector, error) {
	if c, ok := d.(driver.DriverContext); ok {
		return c.OpenConnector(dsn)
	}
	return dsnConnector{d, dsn}, nil
}

type dsnConnector struct {
	driver driver.Driver
	dsn    string
}

func (c dsnConnector) Connect(context.Context) (driver.Conn, error) { return c.driver.Open(c.dsn) }
func (c dsnConnector) Driver() driver.Driver                        { return c.driver }

// Connector returns a connector whose connections keep statements; those that lack what database/sql may ask of them are left
// as they are.
func Connector(base driver.Connector) driver.Connector { return connector{base} }

type connector struct{ driver.Connector }

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	base, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	if b, ok := base.(connection); ok {
		return &conn{b, map[string]statement{}}, nil
	}
	return base, nil
}

type keepKey struct{}

// Keep returns a context for statements that are to be kept. Others are not: their texts may be without number, and some of
// somebody else's, a PRAGMA for one, act when they are compiled.
func Keep(ctx context.Context) context.Context { return context.WithValue(ctx, keepKey{}, true) }

func keeps(ctx context.Context) bool { return ctx.Value(keepKey{}) != nil }
