package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/admin"
	"github.com/incursa/watermill-outbox/inbox"
	"github.com/incursa/watermill-outbox/join"
)

// The exit codes, as the help says.
const (
	exitOK          = 0
	exitTrouble     = 1
	exitUsage       = 2
	exitDatabase    = 3
	exitInterrupted = 130
)

// errTrouble ends a command that has already said what is wrong.
var errTrouble = errors.New("trouble was found")

var errInterrupted = errors.New("interrupted")

// errOutput is what a failed write to Streams.Out is.
var errOutput = errors.New("the output cannot be written")

// output tells its errors from others.
type output struct{ io.Writer }

func (o output) Write(p []byte) (int, error) {
	n, err := o.Writer.Write(p)
	if err != nil {
		err = fmt.Errorf("%w: %w", errOutput, err)
	}
	return n, err
}

// A usageError is a command line that cannot be run.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func usage(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// exit writes an error, and what to do about it, and returns the code to end with.
func (a *app) exit(ctx context.Context, err error) int {
	if err == nil {
		return exitOK
	}
	if errors.Is(err, errTrouble) {
		return exitTrouble
	}
	code, advice := a.judge(ctx, err)
	if code == exitInterrupted && !errors.Is(err, outbox.ErrUnknownOutcome) {
		err = errInterrupted // where that was is nobody's concern
	}
	var field *outbox.FieldError
	if errors.As(err, &field) {
		err = errors.New(inWords(field))
	}
	a.complain(err)
	if advice != "" {
		fmt.Fprintf(a.Err, "%s\n", advice)
	}
	return code
}

// complain writes an error, harmlessly and without passwords.
func (a *app) complain(err error) {
	fmt.Fprintf(a.Err, "outbox: %s\n", escape(a.redact(withoutPackage(err.Error())), true))
}

// withoutPackage is the text of an error without the name of the package that it begins with, and without empty lines at its end.
func withoutPackage(text string) string {
	for _, name := range []string{"outbox: ", "admin: ", "join: ", "inbox: "} {
		if rest, found := strings.CutPrefix(text, name); found {
			text = rest
			break
		}
	}
	return strings.TrimRight(text, "\n")
}

// absent are the errors for what is not there.
var absent = []error{admin.ErrNotFound, join.ErrNotFound, join.ErrEnded, inbox.ErrNotFound, outbox.ErrNotBlocked, admin.ErrNotPaused, admin.ErrNotFailed, errNoGroup}

// schemaAdvice says what helps against tables that are missing. Migrate says itself what it cannot help against.
func (a *app) schemaAdvice() string {
	switch {
	case a.command == "outbox migrate up":
		return ""
	case strings.HasPrefix(a.command, "outbox inbox "):
		return "Run 'outbox migrate up --inbox', or 'outbox doctor --inbox' to see what is missing. Check --schema and --table, too."
	default:
		return "Run 'outbox migrate up', or 'outbox doctor' to see what is missing. Check --schema and --table, too."
	}
}

// isRefused says whether the login lacks a right, on PostgreSQL or SQL Server.
func isRefused(err error) bool {
	var postgres interface{ SQLState() string }
	var server interface{ SQLErrorNumber() int32 }
	switch {
	case errors.As(err, &postgres):
		return postgres.SQLState() == "42501"
	case errors.As(err, &server):
		return slices.Contains([]int32{229, 230, 262, 297, 300}, server.SQLErrorNumber())
	}
	return false
}

func (a *app) rightsAdvice() string {
	if a.command == "outbox migrate up" {
		return "Run it as a login that may create tables, or have the owner of the database run the script of 'outbox migrate sql'."
	}
	return "Run the script of 'outbox migrate role', and add the login to the role."
}

func (a *app) judge(ctx context.Context, err error) (code int, advice string) {
	var bad *usageError
	var field *outbox.FieldError
	switch {
	case ctx.Err() != nil:
		return exitInterrupted, ""
	case errors.Is(err, errOutput):
		return exitTrouble, ""
	case errors.As(err, &bad), errors.As(err, &field), !a.ran:
		return exitUsage, ""
	case errors.Is(err, outbox.ErrSchemaNewer):
		return exitTrouble, "Use the outbox command of the newer version."
	case errors.Is(err, outbox.ErrSchema):
		return exitTrouble, a.schemaAdvice()
	case errors.Is(err, errUnreachable):
		return exitDatabase, "Check --dsn or OUTBOX_DSN, that the server runs, and that it lets you in."
	case errors.Is(err, context.DeadlineExceeded):
		return exitDatabase, "It took longer than --timeout allows."
	case isRefused(err):
		return exitDatabase, a.rightsAdvice()
	}
	var notThere *notThereError
	if errors.As(err, &notThere) {
		return exitTrouble, ""
	}
	for _, e := range absent {
		if errors.Is(err, e) {
			return exitTrouble, ""
		}
	}
	return exitDatabase, ""
}
