// Inbox-consumer shows a service whose broker delivers messages several times, and whose effects happen once nevertheless.
//
//	go run ./examples/inbox-consumer                                      on SQLite, embedded: nothing to install
//	go run ./examples/inbox-consumer -dsn postgres://user:password@host/db
//	go run ./examples/inbox-consumer -dsn "sqlserver://user:password@host?database=db"
//
//	payments  are booked as their orders are received: booking, mark and receipt in one transaction   payments.go
//	parcels   are received into a queue and shipped later, with retries and a revival                  parcels.go
//
// The broker is Watermill's GoChannel, in the process. With RabbitMQ the same router has another subscriber.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/incursa/watermill-outbox/examples/internal/stage"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

type options struct {
	dsn     string
	verbose bool
}

// run is main, with what it needs given to it. It returns the exit code.
func run(ctx context.Context, args []string, out, errOut io.Writer) int {
	var o options
	flags := flag.NewFlagSet("inbox-consumer", flag.ContinueOnError)
	flags.SetOutput(errOut)
	flags.StringVar(&o.dsn, "dsn", "", "the database: postgres://…, sqlserver://… or file:… for SQLite (default a temporary SQLite file)")
	flags.BoolVar(&o.verbose, "v", false, "show what Watermill and the inbox log")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 2
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(errOut, "inbox-consumer: %q is no flag; see -h\n", flags.Arg(0))
		return 2
	}
	switch err := story(ctx, o, stage.NewScreen(out)); {
	case err == nil:
		return 0
	case ctx.Err() != nil:
		fmt.Fprintln(errOut, "inbox-consumer: stopped:", err)
		return 130
	default:
		fmt.Fprintln(errOut, "inbox-consumer:", err)
		return 1
	}
}

// story is what you see.
func story(ctx context.Context, o options, screen *stage.Screen) (err error) {
	database, err := stage.Create(ctx, o.dsn, "inbox_consumer", tables)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, database.Drop(ctx)) }()
	var logger watermill.LoggerAdapter = watermill.NopLogger{}
	if o.verbose {
		logger = watermill.NewStdLogger(false, false)
	}
	a, err := newApp(ctx, database, screen, logger)
	if err != nil {
		return err
	}
	screen.Say("%s; tables %s_…", database.Name, database.Prefix)
	if err := a.receive(ctx); err != nil {
		return err
	}
	duplicates, err := a.duplicates(ctx)
	if err != nil {
		return err
	}
	if err := a.shipLater(ctx); err != nil {
		return err
	}
	return a.printBalance(ctx, duplicates)
}
