// Package kept opens databases whose connections keep statements compiled. SQLite's driver compiles each statement at every
// call; the drivers of other databases cache them.
package kept

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
)

// Open opens a database like sql.Open. Its connections keep the statements that run under a context from Keep.
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

// Connector returns a connector whose connections keep statements. Connections that lack an interface that database/sql may
// use are left as they are.
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

// Keep returns a context for statements to keep. Others are not kept: there may be any number of texts, and some, such as a
// PRAGMA, act when they are compiled.
func Keep(ctx context.Context) context.Context { return context.WithValue(ctx, keepKey{}, true) }

func keeps(ctx context.Context) bool { return ctx.Value(keepKey{}) != nil }
