// Package dialect is what the engine must know of a database: how the text of its operations becomes calls, what its error
// numbers mean, and how it quotes names.
package dialect

import (
	"io/fs"

	"github.com/incursa/watermill-outbox/internal/base"
)

// A Dialect is everything that differs between databases: text, error numbers and quoting. It runs nothing itself;
// one engine runs the operations of all of them. SQLServer, Postgres and SQLite are all that there are.
type Dialect interface {
	sealed()

	// Name is the dialect's name in logs and messages, such as "sqlserver".
	Name() string

	// Traits are the facts that the engine needs to know.
	Traits() Traits

	// Quote returns name as a quoted identifier. The name has been validated.
	Quote(name string) string

	// Files holds operations/*.sql, migrations/*.sql and setup/*.sql, written with the default names.
	Files() fs.FS

	// Call returns what is sent to run an operation, given the text of its file.
	Call(text string) Call

	// Classify decides by error number, never by text, what a database error means.
	Classify(err error) ErrorClass
}

// A Call is how an operation is run: statements in order in one transaction, whose rows together are the result.
type Call []Statement

// A Statement is one step of an operation.
type Statement struct {
	Text string

	// Gate marks a question: the statements after it run only if it answers true. One that comes first is asked before
	// the transaction begins, and so keeps an idle worker from taking locks.
	Gate bool
}

// ErrorClass is what a database error means to the engine.
type ErrorClass int

// The classes of errors.
const (
	ErrorOther         ErrorClass = iota
	ErrorRetryable                // run the transaction again: deadlock, serialization failure, lock timeout, busy
	ErrorSchema                   // an object of ours is missing or older
	ErrorNoTransaction            // a savepoint outside a transaction
	ErrorDuplicate                // a key is there already
)

// Traits are the facts about a database that are not SQL text.
type Traits struct {
	// Schema and Table are the default names, with which the files are written.
	Schema, Table string

	// FixedSchema is true where there is no schema to choose.
	FixedSchema bool

	// MaxName is the longest identifier, counted by NameLength.
	MaxName    int
	NameLength func(name string) int

	// Begin opens a transaction that takes its locks at once, where an operation is several statements.
	Begin string

	// Savepoint begins a part of a caller's transaction, Release keeps it and Restore takes it back. Release may be empty.
	Savepoint, Release, Restore string

	// Procedures is true where operations are procedures in the database, which have to be installed, unless Call sends an
	// operation as its file has it.
	Procedures bool

	// BatchSeparator is the line between batches of a printed script, empty if there is none.
	BatchSeparator string

	// ScriptHeader and ScriptFooter go around a printed script and make it one transaction; each batch of it goes between
	// BatchHeader and BatchFooter.
	ScriptHeader, ScriptFooter string
	BatchHeader, BatchFooter   string

	// NewMessageID makes an id that grows with time in the byte order of the database.
	NewMessageID func() (base.MessageID, error)
}
