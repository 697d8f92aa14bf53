// Command outbox looks after an outbox: it installs it, says what is wrong with it, and searches, requeues and discards
// messages. See docs/cli.md.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/microsoft/go-mssqldb"
	_ "modernc.org/sqlite"

	"github.com/incursa/watermill-outbox/cmd/outbox/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends what does not heed the first
	code := cli.Run(ctx, os.Args[1:], cli.Terminal())
	stop()
	os.Exit(code)
}
