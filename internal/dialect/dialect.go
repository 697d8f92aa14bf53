// Package dialect is what the engine needs to know about a database: how operations are called, what error numbers mean, and
// how names are quoted.
package dialect

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/incursa/watermill-outbox/internal/base"
)

// A Dialect is everything that differs between databases: text, error numbers and quoting. It runs nothing itself: one
// engine runs the operations of all dialects. The only dialects are SQLServer, Postgres and SQLite.
type Dialect interface {
	sealed()

	// Name is the dialect's name in logs and errors, such as "sqlserver".
	Name() string

	// Traits are the facts that the engine needs.
	Traits() Traits

	// Quote returns name as a quoted identifier. The name has been validated.
	Quote(name string) string

	// Files holds operations/*.sql, migrations/*.sql and setup/*.sql, written with the default names.
	Files() fs.FS

	// Call returns the statements that run an operation, given the text of its file.
	Call(text string) Call

	// Classify says what a database error means, by its number and never by its text.
	Classify(err error) ErrorClass
}

// A Call is the statements of an operation: they run in order in one transaction, and their rows together are the result.
type Call []Statement

// A Statement is one step of an operation.
type Statement struct {
	Text string

	// Gate marks a condition: the statements after it run only if it returns true. If it is the first statement, it runs
	// before the transaction begins, so that an idle worker takes no locks.
	Gate bool
}

// ErrorClass is what a database error means to the engine.
type ErrorClass int

// The classes of errors.
const (
	ErrorOther         ErrorClass = iota
	ErrorRetryable                // run the transaction again: deadlock, serialization failure, lock timeout, busy
	ErrorSchema                   // an object of the outbox is missing or out of date
	ErrorNoTransaction            // a savepoint outside a transaction
	ErrorDuplicate                // a key already exists
	ErrorReadOnly                 // the server that this connection leads to takes no writes: after a failover, another one does
	ErrorData                     // what was to be written is refused for what it is, such as a text that is too long
)

// Traits are the facts about a database that are not SQL text.
type Traits struct {
	// Schema and Table are the default names, which the files use.
	Schema, Table string

	// FixedSchema is true if there is no schema to choose.
	FixedSchema bool

	// MaxName is the length of the longest identifier, as NameLength counts it.
	MaxName    int
	NameLength func(name string) int

	// Reserved begins names that the database keeps for itself, in any case; it is empty if it keeps none.
	Reserved string

	// Begin opens the transaction of an operation of several statements, and takes its locks at once.
	Begin string

	// Savepoint begins a part of a caller's transaction, Release keeps it, and Restore undoes it. Release may be empty.
	// {savepoint} is a name, at most 32 characters long, and another one each time.
	Savepoint, Release, Restore string

	// Procedures is true if operations are procedures, which must be installed in the database, unless Call sends the file's
	// own text.
	Procedures bool

	// Columns is true if lists of messages are sent as arrays, one for each column, instead of as JSON.
	Columns bool

	// BatchSeparator is the line between batches of a printed script, or empty.
	BatchSeparator string

	// ScriptHeader and ScriptFooter enclose a printed script and make it one transaction; BatchHeader and BatchFooter enclose
	// each of its batches.
	ScriptHeader, ScriptFooter string
	BatchHeader, BatchFooter   string

	// NewMessageID returns an id that grows with time in the byte order of the database.
	NewMessageID func() (base.MessageID, error)
}

// Mismatch returns err with a hint if it is the error of another database than that of the dialect, and nil otherwise.
func Mismatch(d Dialect, err error) error {
	of := databaseOf(err)
	if of == "" || of == d.Name() {
		return nil
	}
	return fmt.Errorf("the Dialect is that of %s, but the driver is for %s; set the Dialect of your database: %w", d.Name(), of, err)
}

// IsReadOnly reports whether err is the answer of a server that takes no writes, of whichever database.
func IsReadOnly(err error) bool {
	return SQLServer{}.Classify(err) == ErrorReadOnly || Postgres{}.Classify(err) == ErrorReadOnly
}

// databaseOf returns the name of the dialect whose drivers make such errors, or an empty string.
func databaseOf(err error) string {
	var (
		sqlServer interface{ SQLErrorNumber() int32 }
		postgres  interface{ SQLState() string }
		sqlite    interface{ Code() int }
	)
	switch {
	case errors.As(err, &sqlServer):
		return SQLServer{}.Name()
	case errors.As(err, &postgres):
		return Postgres{}.Name()
	case errors.As(err, &sqlite):
		return SQLite{}.Name()
	default:
		return ""
	}
}
