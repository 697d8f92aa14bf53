// Orders shows an outbox at work: orders and their messages in one transaction each, an order that is rolled back,
// a handler that fails and recovers, a message that no handler can take, and a worker process that is killed while it
// holds messages.
//
//	go run ./internal/demo/orders                                      on SQLite, embedded: nothing to install
//	go run ./internal/demo/orders -in testdata/webhooks.ndjson.gz      with real messages
//	go run ./internal/demo/orders -dsn postgres://user:password@host/db
//	go run ./internal/demo/orders -dsn "sqlserver://user:password@host?database=db"
//
// Read on here for the story, in shop.go for publishing, and in worker.go for the Watermill router and its handler.
package main

import (
	"context"
	"embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/demo/stage"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == workerFlag {
		os.Exit(workerMain(os.Stdin, os.Stdout, os.Stderr)) // started by the story, below
	}
	stage.Main(run)
}

//go:embed sql/*.sql
var tables embed.FS

type options struct {
	in, dsn string
	verbose bool
}

func run(ctx context.Context, args []string, out, errOut io.Writer) int {
	var o options
	flags := flag.NewFlagSet("orders", flag.ContinueOnError)
	flags.StringVar(&o.in, "in", "", "publish the messages of this `FILE`: NDJSON, plain or gzip, a line is {\"topic\": …, \"payload\": …}")
	flags.StringVar(&o.dsn, "dsn", "", "the database: postgres://…, sqlserver://… or file:… for SQLite (default a temporary SQLite file)")
	flags.BoolVar(&o.verbose, "v", false, "show what Watermill and the outbox log")
	return stage.Run(ctx, flags, args, errOut, func() error { return story(ctx, o, newScreen(out), errOut) })
}

// story is what you see.
func story(ctx context.Context, o options, screen *screen, errOut io.Writer) (err error) {
	orders, err := readOrders(o.in)
	if err != nil {
		return err
	}
	database, err := stage.Create(ctx, o.dsn, "orders", tables)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, database.Drop(ctx)) }()
	shop, err := openShop(database)
	if err != nil {
		return err
	}
	screen.Say("%s; tables %s_…", database.Name, database.Prefix)

	// 1. Publish. An order and its message are one transaction: both are there, or neither.
	for i, order := range orders {
		if err := shop.place(ctx, order, paid); err != nil {
			return fmt.Errorf("publish %s: %w", order.name, err)
		}
		screen.Progress("%d orders placed so far", i+1)
	}
	screen.Say("%d orders placed%s, each together with its message in one transaction", len(orders), from(o.in))

	if err := shop.place(ctx, declinedOrder(orders), declined); !errors.Is(err, errDeclined) {
		return fmt.Errorf("the order that must be rolled back: %w", err)
	}
	screen.Say("1 order rolled back after its message was published: %v", errDeclined)

	if err := shop.place(ctx, poisonOrder(orders), paid); err != nil {
		return fmt.Errorf("publish the poison message: %w", err)
	}
	screen.Say("1 poison message published: its payload is not JSON")

	// 2. A worker process takes messages, and is killed while it holds some.
	todo := job{DSN: database.DSN, Prefix: database.Prefix, Topics: topics(orders), Flaky: orders[len(orders)-1].name, Verbose: o.verbose}
	if err := killedWorker(ctx, todo, shop, screen, errOut); err != nil {
		return err
	}

	// 3. Another worker takes over: nobody has to tell it, the leases of the dead one end.
	if err := lastWorker(ctx, todo, shop, screen, errOut); err != nil {
		return err
	}

	// 4. Count, from what the handlers wrote and from what the table says.
	result, err := shop.audit(ctx)
	if err != nil {
		return err
	}
	return result.print(screen)
}

func from(file string) string {
	if file == "" {
		return ""
	}
	return ", one for each message of " + file
}

// killedWorker starts a worker that hangs after a few messages, and kills it once it holds others.
func killedWorker(ctx context.Context, todo job, shop *shop, screen *screen, errOut io.Writer) error {
	orders := len(shop.published) - 1 // without the poison message
	todo.Name, todo.HangAfter = "worker 1", min(5, orders/4)
	worker, err := startWorker(ctx, todo, errOut)
	if err != nil {
		return err
	}
	defer worker.Kill()
	screen.Say("%s starts, process %d", todo.Name, worker.PID())

	// It finishes a few, and one more without a chance to say so; all others stay in its hands, half done.
	var acked, done, hanging int
	wantHanging := min(maxInFlight, orders-todo.HangAfter)
	for acked < todo.HangAfter || done <= todo.HangAfter || hanging < wantHanging {
		news, err := worker.Next(ctx)
		if err != nil {
			return err
		}
		switch news.Event {
		case settled:
			acked += news.Count
		case delivered:
			done++
		case hangs:
			hanging++
		}
		screen.tell(news)
	}
	screen.Say("%s has finished %d messages and hangs in the middle of %d others", todo.Name, acked, hanging)

	worker.Kill()
	states, err := shop.states(ctx)
	if err != nil {
		return err
	}
	if states[outbox.InProgress] == 0 {
		return fmt.Errorf("%s was killed, but held no message", todo.Name)
	}
	screen.Say("%s killed (SIGKILL); the table says: %d done, %d failed, %d waiting, %d held by the dead worker", todo.Name,
		states[outbox.Done], states[outbox.Failed], states[outbox.Ready], states[outbox.InProgress])
	return nil
}

// lastWorker starts a worker and stops it when all messages have come to an end.
func lastWorker(ctx context.Context, todo job, shop *shop, screen *screen, errOut io.Writer) error {
	todo.Name, todo.HangAfter = "worker 2", never
	worker, err := startWorker(ctx, todo, errOut)
	if err != nil {
		return err
	}
	defer worker.Kill()
	screen.Say("%s starts, process %d; leases last %v", todo.Name, worker.PID(), lease)

	for {
		news, err := worker.Next(ctx)
		if err != nil {
			return err
		}
		screen.tell(news)
		if news.Event != settled {
			continue
		}
		if live, err := shop.hasLive(ctx); err != nil {
			return err
		} else if !live {
			break
		}
	}
	if err := worker.Stop(); err != nil {
		return err
	}
	screen.Say("all messages have come to an end, %s stops", todo.Name)
	return nil
}
