// Fanout shows one stream of orders that drives many destinations: billing, shipping and analytics, an audit for one tenant,
// a summary once a second, and a warehouse in another database. The process that dispatches is killed in the middle of a
// transaction, and another takes over.
//
//	go run ./internal/demo/fanout      on SQLite, embedded: nothing to install
//
// Read on here for the story, and in dispatcher.go for the policies.
package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/demo/stage"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == dispatcherFlag {
		os.Exit(dispatcherMain(os.Stdin, os.Stdout, os.Stderr)) // started by the story, below
	}
	stage.Main(run)
}

func run(ctx context.Context, args []string, out, errOut io.Writer) int {
	flags := flag.NewFlagSet("fanout", flag.ContinueOnError)
	return stage.Run(ctx, flags, args, errOut, func() error { return story(ctx, newScreen(out), errOut) })
}

const (
	ordersBefore = 60 // are placed before the first dispatcher starts
	killedAt     = 35 // is the order in whose transaction it is killed
	ordersAfter  = 40 // are placed while nobody dispatches, and while the second does
)

// story is what you see.
func story(ctx context.Context, screen *screen, errOut io.Writer) (err error) {
	folder, err := os.MkdirTemp("", "fanout-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	todo := job{Shop: filepath.Join(folder, "shop.db"), Warehouse: filepath.Join(folder, "warehouse.db")}
	shop, err := openShop(ctx, todo)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, shop.close()) }()
	screen.say("two SQLite databases in %s: the shop's and the warehouse's", folder)

	// 1. The stream: each order is written to the log, in the transaction in which a shop would also write its row.
	if err := shop.place(ctx, ordersBefore); err != nil {
		return err
	}
	screen.say("%d orders placed, of two tenants", ordersBefore)

	// 2. A dispatcher process, which is killed while a transaction of its is open.
	todo.HangAt = orderName(killedAt)
	first, err := stage.Start[news](ctx, "dispatcher 1", dispatcherFlag, todo, errOut)
	if err != nil {
		return err
	}
	defer first.Kill()
	screen.say("dispatcher 1 starts, process %d: policies orders, acme, summary, warehouse", first.PID())
	for hangs := false; !hangs; {
		news, err := first.Next(ctx)
		if err != nil {
			return err
		}
		hangs = news.Hangs
		screen.tell("dispatcher 1", news)
	}
	first.Kill()
	screen.say("dispatcher 1 is killed in the transaction that sends %s on: neither its copies nor its cursor are written", todo.HangAt)
	standing, err := shop.count(ctx)
	if err != nil {
		return err
	}
	screen.say("billing has %d of %d orders", standing[0].arrived, ordersBefore)

	// 3. Orders go on. Another dispatcher takes over where the cursors are, once the lease of the dead one ends.
	todo.HangAt = ""
	second, err := stage.Start[news](ctx, "dispatcher 2", dispatcherFlag, todo, errOut)
	if err != nil {
		return err
	}
	defer second.Kill()
	screen.say("dispatcher 2 starts, process %d", second.PID())
	placing := make(chan error, 1)
	go func() { placing <- shop.place(ctx, ordersAfter) }()
	if err := watch(ctx, second, screen); err != nil {
		return err
	}
	if err := <-placing; err != nil {
		return err
	}
	if err := second.Stop(); err != nil {
		return err
	}

	// 4. Count, from what the databases say.
	counts, err := shop.count(ctx)
	if err != nil {
		return err
	}
	return screen.print(counts)
}

// watch tells what a dispatcher does until all its policies have passed all orders.
func watch(ctx context.Context, dispatcher *stage.Process[news], screen *screen) error {
	passed := map[string]int64{}
	for {
		news, err := dispatcher.Next(ctx)
		if err != nil {
			return err
		}
		screen.tell(dispatcher.Name, news)
		passed[news.Policy] = news.Position
		all := len(passed) == len(policyNames)
		for _, position := range passed {
			all = all && position == ordersBefore+ordersAfter
		}
		if all {
			return nil
		}
	}
}

var dialect = outbox.SQLite{}
