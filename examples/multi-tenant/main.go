// Multi-tenant shows one process that serves many outboxes: a database for each tenant, found in a folder, migrated with a
// progress bar, published to by the tenant's key, and handled by one Watermill router. Tenants come, go, have a backlog and
// are away for a moment while it runs, and none of that reaches the others.
//
//	go run ./examples/multi-tenant        on SQLite, embedded: nothing to install
//	go run ./examples/multi-tenant -v     with what Watermill and the outboxes log
//
// Read on in story.go for what you see, in folder.go for how tenants are found, and in shop.go for the router.
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
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is main, with what it needs given to it. It returns the exit code.
func run(ctx context.Context, args []string, out, errOut io.Writer) int {
	flags := flag.NewFlagSet("multi-tenant", flag.ContinueOnError)
	flags.SetOutput(errOut)
	verbose := flags.Bool("v", false, "show what Watermill and the outboxes log")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 2
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(errOut, "multi-tenant: %q is no flag; see -h\n", flags.Arg(0))
		return 2
	}
	var logger watermill.LoggerAdapter = watermill.NopLogger{}
	if *verbose {
		logger = watermill.NewStdLogger(false, false)
	}
	switch err := story(ctx, out, logger); {
	case err == nil:
		return 0
	case ctx.Err() != nil:
		fmt.Fprintln(errOut, "multi-tenant: stopped:", err)
		return 130
	default:
		fmt.Fprintln(errOut, "multi-tenant:", err)
		return 1
	}
}
