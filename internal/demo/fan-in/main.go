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

	"github.com/ThreeDotsLabs/watermill"

	"github.com/incursa/watermill-outbox/internal/demo/stage"
)

var fanIn = stage.Story{Name: "fan-in", Tables: tables, Tell: tell}

func main() {
	stage.Main(fanIn.Run)
}

// tell is what you see.
func tell(ctx context.Context, database *stage.Database, screen *stage.Screen, logger watermill.LoggerAdapter) error {
	a, err := newApp(database, screen, logger)
	if err != nil {
		return err
	}
	workflows := []workflow{a.etl(), a.report(), a.pipeline()}
	if err := a.run(ctx, workflows); err != nil {
		return err
	}
	return a.printOutcomes(ctx, workflows)
}
