package faults

import (
	"fmt"

	"github.com/incursa/watermill-outbox/internal/testdb"
)

// An Error is one that a database might return. It answers to each driver's way of asking for its number.
type Error struct {
	Number int32  // SQL Server's
	State  string // PostgreSQL's SQLSTATE
	Result int    // SQLite's result code
}

// Deadlock returns the error by which each database says that a transaction lost a conflict and may be run again.
func Deadlock(backend string) *Error {
	switch backend {
	case testdb.Postgres:
		return &Error{State: "40P01"}
	case testdb.SQLServer:
		return &Error{Number: 1205}
	default:
		return &Error{Result: 5}
	}
}

func (e *Error) Error() string {
	return fmt.Sprintf("injected error: number %d, SQLSTATE %q, result code %d", e.Number, e.State, e.Result)
}

// SQLErrorNumber is how go-mssqldb tells the number.
func (e *Error) SQLErrorNumber() int32 { return e.Number }

// SQLState is how pgx tells it.
func (e *Error) SQLState() string { return e.State }

// Code is how modernc.org/sqlite tells it.
func (e *Error) Code() int { return e.Result }

// refusals are the errors with which each database refuses a statement, besides Deadlock.
var refusals = map[string][]*Error{
	testdb.SQLite: {
		{Result: 5},   // busy
		{Result: 6},   // locked
		{Result: 517}, // busy, the snapshot is old
		{Result: 7},   // out of memory
		{Result: 8},   // read-only
		{Result: 9},   // interrupted
		{Result: 10},  // an error of the disk
		{Result: 13},  // the disk is full
	},
	testdb.Postgres: {
		{State: "40001"}, // serialization failure
		{State: "40P01"}, // deadlock
		{State: "55P03"}, // lock not available
		{State: "57014"}, // statement timeout
		{State: "25006"}, // read-only transaction
		{State: "53100"}, // disk full
		{State: "53200"}, // out of memory
		{State: "58030"}, // an error of the disk
	},
	testdb.SQLServer: {
		{Number: 1205}, // deadlock
		{Number: 3960}, // update conflict under SNAPSHOT
		{Number: 1222}, // lock timeout
		{Number: 3906}, // read-only database
		{Number: 1105}, // the filegroup is full
		{Number: 9002}, // the log is full
		{Number: 701},  // out of memory
		{Number: 823},  // an error of the disk
	},
}

// endings are the errors with which each database ends a connection.
var endings = map[string][]*Error{
	testdb.SQLite:    {{Result: 4874}},                                       // an error of the disk, of shared memory
	testdb.Postgres:  {{State: "57P01"}, {State: "57P02"}, {State: "25P03"}}, // by an administrator, by a crash, idle in its transaction
	testdb.SQLServer: {{Number: 596}, {Number: 6005}, {Number: 40197}},       // killed, shutting down, moved to another server
}

// aborts leaves an open transaction as a refused statement does: PostgreSQL's does nothing from then on. The others' stay
// as they are, or may.
var aborts = map[string]string{testdb.Postgres: "SELECT 1 / 0"}
