// Inbox-consumer shows a service whose broker delivers messages several times, and whose effects happen once nevertheless.
//
//	go run ./examples/inbox-consumer                                      on SQLite, embedded: nothing to install
//	go run ./examples/inbox-consumer -dsn postgres://user:password@host/db
//	go run ./examples/inbox-consumer -dsn "sqlserver://user:password@host?database=db"
//
//	payments  are booked as their orders are received: booking, mark and receipt in one transaction   payments.go
//	parcels   are received into a queue and shipped later, with retries and a requeue                  parcels.go
//
// The broker is Watermill's GoChannel, in the process. With RabbitMQ the same router has another subscriber.
package main

import (
	"context"
	"errors"
	"flag"
	"io"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/incursa/watermill-outbox/examples/internal/stage"
)

func main() {
	stage.Main(run)
}

type options struct {
	dsn     string
	verbose bool
}

func run(ctx context.Context, args []string, out, errOut io.Writer) int {
	var o options
	flags := flag.NewFlagSet("inbox-consumer", flag.ContinueOnError)
	flags.StringVar(&o.dsn, "dsn", "", "the database: postgres://…, sqlserver://… or file:… for SQLite (default a temporary SQLite file)")
	flags.BoolVar(&o.verbose, "v", false, "show what Watermill and the inbox log")
	return stage.Run(ctx, flags, args, errOut, func() error { return story(ctx, o, stage.NewScreen(out)) })
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
