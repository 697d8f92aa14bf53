// Fan-in shows joins at work: three workflows whose messages go out side by side, and what follows when all have ended.
//
//	go run ./internal/demo/fan-in                                      on SQLite, embedded: nothing to install
//	go run ./internal/demo/fan-in -dsn postgres://user:password@host/db
//	go run ./internal/demo/fan-in -dsn "sqlserver://user:password@host?database=db"
//
//	etl       three extractions, then the transformation; one extraction fails once and is tried again   etl.go
//	report    five sections, one of which fails for good, then a report of what there is                 report.go
//	pipeline  three sources, then two checks of what they brought, then the publication                  pipeline.go
//
// Read on in fanout.go, where a join is started, and in app.go for the Watermill router.
package main

import (
	"context"
	"errors"
	"flag"
	"io"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/incursa/watermill-outbox/internal/demo/stage"
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
	flags := flag.NewFlagSet("fan-in", flag.ContinueOnError)
	flags.StringVar(&o.dsn, "dsn", "", "the database: postgres://…, sqlserver://… or file:… for SQLite (default a temporary SQLite file)")
	flags.BoolVar(&o.verbose, "v", false, "show what Watermill and the outbox log")
	return stage.Run(ctx, flags, args, errOut, func() error { return story(ctx, o, stage.NewScreen(out)) })
}

// story is what you see.
func story(ctx context.Context, o options, screen *stage.Screen) (err error) {
	database, err := stage.Create(ctx, o.dsn, "fan_in", tables)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, database.Drop(ctx)) }()
	var logger watermill.LoggerAdapter = watermill.NopLogger{}
	if o.verbose {
		logger = watermill.NewStdLogger(false, false)
	}
	a, err := newApp(database, screen, logger)
	if err != nil {
		return err
	}
	screen.Say("%s; tables %s_…", database.Name, database.Prefix)

	workflows := []workflow{a.etl(), a.report(), a.pipeline()}
	if err := a.run(ctx, workflows); err != nil {
		return err
	}
	return a.printOutcomes(ctx, workflows)
}
