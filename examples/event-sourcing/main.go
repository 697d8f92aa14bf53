// Event-sourcing keeps an account as events. A command reads them, decides, and appends what follows at the version that it has
// read; a projection keeps the balances, is stopped half-way, goes on, and is rebuilt beside itself.
//
//	go run ./examples/event-sourcing
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sync/errgroup"
	_ "modernc.org/sqlite"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/eventstore"
)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "outbox-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	dsn := "file:" + filepath.ToSlash(dir) + "/bank.db?_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)&_txlock=immediate"
	db, err := outbox.OpenSQLite("sqlite", dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	if err := outbox.Migrate(ctx, db, outbox.MigrateConfig{Dialect: outbox.SQLite{}}); err != nil {
		return err
	}
	store, err := eventstore.New(db, eventstore.Config{Dialect: outbox.SQLite{}}, nil)
	if err != nil {
		return err
	}
	// Gives what is committed its place in the log, which projections read. One process must run it, any number may.
	sequencer, err := outbox.NewSequencer(db, outbox.SequencerConfig{Dialect: outbox.SQLite{}}, nil)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return sequencer.Run(ctx) })
	group.Go(func() error {
		defer stop()
		return errors.Join(commands(ctx, store), projections(ctx, db, store))
	})
	return group.Wait()
}

func commands(ctx context.Context, store *eventstore.Store) error {
	for _, amount := range []int{100, -30, -500, 50} {
		switch err := move(ctx, store, "account-1", amount); {
		case errors.Is(err, errOverdrawn):
			fmt.Printf("refused %d: %v\n", amount, err)
		case err != nil:
			return err
		}
	}
	_, err := store.Append(ctx, nil, "account-1", eventstore.Exactly(1), moved(-100))
	var conflict *eventstore.VersionError
	if !errors.As(err, &conflict) {
		return fmt.Errorf("want a conflict, and it is %w", err)
	}
	fmt.Printf("conflict: expected %v, and it is version %d\n", conflict.Expected, conflict.Actual)
	return move(ctx, store, "account-2", 7)
}

var errOverdrawn = errors.New("the account would be overdrawn")

// move is a command. If another one comes between reading and appending, it is decided again.
func move(ctx context.Context, store *eventstore.Store, account string, amount int) error {
	for {
		balance, version := 0, int64(0)
		for e, err := range store.Read(ctx, nil, account, eventstore.ReadParams{}) {
			if err != nil {
				return err
			}
			change, err := strconv.Atoi(string(e.Payload))
			if err != nil {
				return err
			}
			balance, version = balance+change, e.Version
		}
		if balance+amount < 0 {
			return errOverdrawn
		}
		_, err := store.Append(ctx, nil, account, eventstore.Exactly(version), moved(amount))
		if errors.Is(err, eventstore.ErrVersionConflict) {
			continue
		}
		if err == nil {
			fmt.Printf("%s: moved %d, and has %d\n", account, amount, balance+amount)
		}
		return err
	}
}

func moved(amount int) eventstore.Event {
	return eventstore.Event{Type: "MoneyMoved", Payload: fmt.Append(nil, amount)}
}

// projections are stopped before all is done, go on where they were, and begin again in a table of their own.
func projections(ctx context.Context, db *sql.DB, store *eventstore.Store) error {
	return errors.Join(project(ctx, db, store, "balances", 2), project(ctx, db, store, "balances", -1), project(ctx, db, store, "balances_v2", -1))
}

// project keeps the balances in a table until it has the last event, or after so many events.
func project(ctx context.Context, db *sql.DB, store *eventstore.Store, table string, stopAfter int) error {
	if _, err := db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS "+table+" (account TEXT PRIMARY KEY, balance INTEGER NOT NULL)"); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	applied := 0
	p, err := store.NewProjection(eventstore.ProjectionConfig{Name: table, BatchSize: 1, Apply: func(ctx context.Context, tx *sql.Tx, e eventstore.Event) error {
		if applied++; applied == stopAfter+1 {
			stop() // in the middle of the third: it is rolled back, and its place with it
		}
		_, err := tx.ExecContext(ctx, "INSERT INTO "+table+" VALUES ($1, $2) ON CONFLICT (account) DO UPDATE SET balance = balance + excluded.balance",
			e.Stream, string(e.Payload))
		return err
	}})
	if err != nil {
		return err
	}
	group := errgroup.Group{}
	group.Go(func() error { return p.Run(ctx) })
	waited := store.WaitFor(ctx, table, "account-2", 1) // until its effects can be read
	stop()
	if err := group.Wait(); err != nil || waited != nil && !errors.Is(waited, context.Canceled) {
		return errors.Join(err, waited)
	}
	var accounts, balance int
	err = db.QueryRow("SELECT COUNT(*), SUM(balance) FROM "+table).Scan(&accounts, &balance)
	fmt.Printf("%s: %d in %d account(s)\n", table, balance, accounts)
	return err
}
