package dialect

import (
	"errors"
	"io/fs"
	"strings"

	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/limits"
	"github.com/incursa/watermill-outbox/schema"
)

// SQLite is the dialect of SQLite 3.45 and later through modernc.org/sqlite, which needs no C compiler.
// Open the database with OpenSQLite, with WAL, a busy timeout and immediate transactions:
//
//	file:orders.db?_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)&_txlock=immediate
type SQLite struct{}

func (SQLite) sealed() {}

// Name implements Dialect.
func (SQLite) Name() string { return "sqlite" }

// Traits implements Dialect.
func (SQLite) Traits() Traits {
	return Traits{
		Schema:       "main",
		Table:        "outbox",
		FixedSchema:  true,
		MaxName:      128,
		Reserved:     "sqlite_",
		NameLength:   limits.UTF16,
		Begin:        "BEGIN IMMEDIATE",
		Savepoint:    "SAVEPOINT {savepoint}",
		Release:      "RELEASE SAVEPOINT {savepoint}",
		Restore:      "ROLLBACK TO SAVEPOINT {savepoint}; RELEASE SAVEPOINT {savepoint}",
		ScriptHeader: "BEGIN IMMEDIATE;\n\n",
		ScriptFooter: "COMMIT;\n",
		NewMessageID: base.NewTimeOrderedID,
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
		statement = strings.TrimSpace(statement) // the driver does not keep a statement compiled if text follows it
		if code := WithoutComments(statement); code != "" {
			call = append(call, Statement{Text: statement, Gate: strings.HasPrefix(code, "SELECT EXISTS")})
		}
	}
	return call
}

// WithoutComments drops the leading comment lines of a statement.
func WithoutComments(statement string) string {
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
	case 1: // SQLITE_ERROR: the text is constant, so only the objects that it names can be wrong
		return ErrorSchema
	case 18, 19, 20: // SQLITE_TOOBIG, SQLITE_CONSTRAINT, SQLITE_MISMATCH
		return ErrorData
	default:
		return ErrorOther
	}
}
