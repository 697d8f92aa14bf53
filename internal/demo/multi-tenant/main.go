// Multi-tenant shows one process that serves many outboxes: a database for each tenant, found in a folder, migrated with a
// progress bar, published to by the tenant's key, and handled by one Watermill router. Tenants come, go, have a backlog and
// are away for a moment while it runs, and none of that reaches the others.
//
//	go run ./internal/demo/multi-tenant        on SQLite, embedded: nothing to install
//	go run ./internal/demo/multi-tenant -v     with what Watermill and the outboxes log
//
// Read on in story.go for what you see, in folder.go for how tenants are found, and in shop.go for the router.
package main

import (
	"context"
	"flag"
	"io"

	"github.com/incursa/watermill-outbox/internal/demo/stage"
)

func main() {
	stage.Main(run)
}

func run(ctx context.Context, args []string, out, errOut io.Writer) int {
	flags := flag.NewFlagSet("multi-tenant", flag.ContinueOnError)
	verbose := flags.Bool("v", false, "show what Watermill and the outboxes log")
	return stage.Run(ctx, flags, args, errOut, func() error { return story(ctx, out, stage.Logger(*verbose)) })
}
