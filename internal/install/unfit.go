package install

import (
	"errors"
	"fmt"
	"strings"

	"github.com/incursa/watermill-outbox/internal/base"
)

// An unfitError is the base.ErrSchema of Check: what it found, apart by who can mend it.
type unfitError struct {
	table    string
	nothing  bool    // neither the table nor its history is there
	schema   []error // what Migrate mends
	settings []error // what it does not
}

// Error has a line for each problem. Where nothing is installed, what is missing is not worth a line each.
func (e *unfitError) Error() string {
	lines := e.Problems()
	switch {
	case e.nothing:
		lines[0] = e.table + ": " + lines[0] + "; run outbox.Migrate, or check Schema and Table"
	case len(e.schema) == 0 && len(lines) == 1:
		lines[0] = e.heading() + " " + lines[0]
	default:
		lines = append([]string{e.heading()}, lines...)
	}
	return strings.Join(lines, "\n")
}

func (e *unfitError) heading() string {
	switch {
	case len(e.schema) == 0:
		return e.table + ": settings do not fit:"
	case errors.Is(errors.Join(e.schema...), base.ErrSchemaNewer):
		return e.table + ": the schema does not fit:" // Migrate would not mend it
	}
	return fmt.Sprintf("%s: %v", e.table, base.ErrSchema)
}

// Problems are what is wrong, a sentence each: for the command line and the console, which have headings of their own.
func (e *unfitError) Problems() (list []string) {
	if e.nothing {
		list = append(list, "nothing is installed under this name")
	} else {
		list = sentencesOf(e.schema)
	}
	return append(list, sentencesOf(e.settings)...)
}

func sentencesOf(errs []error) []string {
	if len(errs) == 0 {
		return nil
	}
	return strings.Split(errors.Join(errs...).Error(), "\n")
}

func (e *unfitError) Is(target error) bool { return target == base.ErrSchema }
func (e *unfitError) Unwrap() []error      { return append(append([]error{}, e.schema...), e.settings...) }

// isSetting reports whether a problem is nothing that Migrate can mend: a setting of the server, the database or its
// connections. The files of the checks say which words belong to the others.
func isSetting(problem error) bool {
	text := problem.Error()
	return !strings.HasSuffix(text, " is missing") && !strings.Contains(text, " is of an earlier layout") &&
		!strings.Contains(text, " was created with ")
}
