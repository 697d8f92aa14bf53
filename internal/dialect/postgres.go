package dialect

import (
	"errors"
	"io/fs"
	"strings"

	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/schema"
)

// Postgres is the dialect of PostgreSQL 14 and later, through pgx's or lib/pq's database/sql driver.
type Postgres struct{}

func (Postgres) sealed() {}

// Name implements Dialect.
func (Postgres) Name() string { return "postgres" }

// Traits implements Dialect.
func (Postgres) Traits() Traits {
	return Traits{
		Schema:     "public",
		Table:      "outbox",
		MaxName:    63,
		NameLength: func(name string) int { return len(name) },
		Begin:      "BEGIN",
		Savepoint:  "SAVEPOINT {savepoint}",
		Release:    "RELEASE SAVEPOINT {savepoint}",
		Restore:    "ROLLBACK TO SAVEPOINT {savepoint}; RELEASE SAVEPOINT {savepoint}",
		Procedures: true,
		Columns:    true, // JSON would cost a fifth more
		// A single statement is atomic, both inside another transaction (psql -1, a migration tool) and outside.
		ScriptHeader: "DO $outbox_script$\nBEGIN\n\n",
		BatchHeader:  "EXECUTE $outbox_batch$\n",
		BatchFooter:  "$outbox_batch$;\n",
		ScriptFooter: "END\n$outbox_script$;\n",
		NewMessageID: base.NewTimeOrderedID,
	}
}

// Quote implements Dialect.
func (Postgres) Quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// Files implements Dialect.
func (Postgres) Files() fs.FS { return schema.Postgres() }

// Call implements Dialect: an operation is a function, called as its file says, or else the file's own statement.
func (Postgres) Call(text string) Call {
	for line := range strings.Lines(text) {
		if call, is := strings.CutPrefix(line, "-- Called as: "); is {
			return Call{{Text: strings.TrimSpace(call)}}
		}
	}
	return Call{{Text: WithoutComments(text)}}
}

// Classify implements Dialect.
func (Postgres) Classify(err error) ErrorClass {
	var e interface{ SQLState() string }
	if !errors.As(err, &e) {
		return ErrorOther
	}
	switch e.SQLState() {
	case "40001", "40P01", "55P03": // serialization failure, deadlock, lock not available
		return ErrorRetryable
	case "23505": // unique violation
		return ErrorDuplicate
	case "25P01": // a savepoint outside a transaction
		return ErrorNoTransaction
	case "25006": // a read-only transaction, as all are on a standby
		return ErrorReadOnly
	case "3F000", "42P01", "42703", "42883": // no such schema, table, column, function
		return ErrorSchema
	}
	switch class := e.SQLState(); {
	case strings.HasPrefix(class, "22"), strings.HasPrefix(class, "23"), strings.HasPrefix(class, "54"): // data, constraints, limits
		return ErrorData
	default:
		return ErrorOther
	}
}
