package dialect

import (
	"database/sql"
	"database/sql/driver"
	"fmt"
	"reflect"
	"strings"
)

// drivers are the modules of drivers, and the dialects of their databases.
var drivers = map[string]Dialect{
	"github.com/jackc/pgx":             Postgres{},
	"github.com/lib/pq":                Postgres{},
	"github.com/microsoft/go-mssqldb":  SQLServer{},
	"github.com/denisenkom/go-mssqldb": SQLServer{},
	"modernc.org/sqlite":               SQLite{},
	"github.com/mattn/go-sqlite3":      SQLite{},
	"github.com/ncruces/go-sqlite3":    SQLite{},
}

// MismatchedDriver says what is wrong with the dialect if db's driver is certain to be that of another database; it returns an empty
// text otherwise. It does not touch the database. A driver that is not known, such as one that wraps another, may be any.
func MismatchedDriver(d Dialect, db *sql.DB) string {
	of := ofDriver(driverOf(db))
	if of == nil || of.Name() == d.Name() {
		return ""
	}
	return fmt.Sprintf("is that of %s, but the driver is for %s; set the Dialect of your database", d.Name(), of.Name())
}

// ofDriver returns the dialect of a driver's database, or nil if the driver is not known.
func ofDriver(d driver.Driver) Dialect {
	t := reflect.TypeOf(d)
	if t == nil {
		return nil
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	for module, dialect := range drivers {
		if path := t.PkgPath(); path == module || strings.HasPrefix(path, module+"/") {
			return dialect
		}
	}
	return nil
}

// driverOf returns the driver of db, or nil if db has none: it is zero, or was made by a connector that panics.
func driverOf(db *sql.DB) (d driver.Driver) {
	defer func() { _ = recover() }()
	return db.Driver()
}
