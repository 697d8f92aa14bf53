package stage

import (
	"context"
	"errors"
	"flag"
	"io"
	"io/fs"
	"strings"

	"github.com/ThreeDotsLabs/watermill"
)

// A Story is a program that shows something on any database, in tables of its own, which it drops at the end.
type Story struct {
	Name   string // of the program
	Tables fs.FS
	Tell   func(context.Context, *Database, *Screen, watermill.LoggerAdapter) error
}

// Run reads the flags, creates the tables and tells the story. It returns the exit code.
func (s Story) Run(ctx context.Context, args []string, out, errOut io.Writer) int {
	flags := flag.NewFlagSet(s.Name, flag.ContinueOnError)
	dsn := flags.String("dsn", "", "the database: postgres://…, sqlserver://… or file:… for SQLite (default a temporary SQLite file)")
	verbose := flags.Bool("v", false, "show what Watermill and the outbox log")
	return Run(ctx, flags, args, errOut, func() (err error) {
		database, err := Create(ctx, *dsn, strings.ReplaceAll(s.Name, "-", "_"), s.Tables)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, database.Drop(ctx)) }()
		screen := NewScreen(out)
		screen.Say("%s; tables %s_…", database.Name, database.Prefix)
		return s.Tell(ctx, database, screen, Logger(*verbose))
	})
}

// Logger shows what Watermill and the outbox log, if verbose.
func Logger(verbose bool) watermill.LoggerAdapter {
	if verbose {
		return watermill.NewStdLogger(false, false)
	}
	return watermill.NopLogger{}
}
