package outbox

import (
	"database/sql"
	"errors"
	"io/fs"
	"strings"

	"github.com/incursa/watermill-outbox/internal/kept"
	"github.com/incursa/watermill-outbox/schema"
)

// SQLite is the dialect of SQLite 3.45 and later through modernc.org/sqlite, which needs no C compiler.
// Open the database by OpenSQLite, with WAL, a busy timeout and immediate transactions:
//
//	file:orders.db?_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)&_txlock=immediate
type SQLite struct{}

// OpenSQLite is sql.Open for SQLite. Its connections keep the outbox's statements compiled; the driver alone compiles each at
// every call, a quarter to a half of the work of most workers. Your own statements run as with sql.Open.
// What (*sql.Conn).Raw is given has a method Unwrap, which returns the driver's connection.
func OpenSQLite(driverName, dsn string) (*sql.DB, error) { return kept.Open(driverName, dsn) }

// Name implements Dialect.
func (SQLite) Name() string { return "sqlite" }

// Traits implements Dialect.
func (SQLite) Traits() Traits {
	return Traits{
		Schema:       "main",
		Table:        "outbox",
		FixedSchema:  true,
		MaxName:      128,
		NameLength:   utf16Length,
		Begin:        "BEGIN IMMEDIATE",
		Savepoint:    "SAVEPOINT outbox_operation",
		Release:      "RELEASE SAVEPOINT outbox_operation",
		Restore:      "ROLLBACK TO SAVEPOINT outbox_operation; RELEASE SAVEPOINT outbox_operation",
		ScriptHeader: "BEGIN IMMEDIATE;\n\n",
		ScriptFooter: "COMMIT;\n",
		NewMessageID: newTimeOrderedID,
	}
}

// Quote implements Dialect.
func (SQLite) Quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// Files implements Dialect.
func (SQLite) Files() fs.FS { return schema.SQLite() }

// Call implements Dialect: an operation is its statements. One that begins with SELECT EXISTS is a gate.
func (SQLite) Call(text string) Call {
	var call Call
	for _, statement := range strings.Split(text, ";\n") {
		statement = strings.TrimSpace(statement) // the driver keeps no text that has anything behind its statement
		if code := withoutComments(statement); code != "" {
			call = append(call, Statement{Text: statement, Gate: strings.HasPrefix(code, "SELECT EXISTS")})
		}
	}
	return call
}

// withoutComments drops the comment lines that a statement begins with.
func withoutComments(statement string) string {
	for {
		statement = strings.TrimSpace(statement)
		if !strings.HasPrefix(statement, "--") {
			return statement
		}
		_, statement, _ = strings.Cut(statement, "\n")
	}
}

// Classify implements Dialect.
func (SQLite) Classify(err error) ErrorClass {
	var e interface{ Code() int }
	if !errors.As(err, &e) {
		return ErrorOther
	}
	switch e.Code() {
	case 1555, 2067: // SQLITE_CONSTRAINT_PRIMARYKEY, SQLITE_CONSTRAINT_UNIQUE
		return ErrorDuplicate
	}
	switch e.Code() & 0xff { // the low byte is the primary code
	case 5, 6: // SQLITE_BUSY, SQLITE_LOCKED
		return ErrorRetryable
	case 1: // SQLITE_ERROR: our text is constant, so that what is wrong with it is what it names
		return ErrorSchema
	default:
		return ErrorOther
	}
}
