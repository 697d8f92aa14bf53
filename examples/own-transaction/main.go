// Own-transaction publishes in a transaction that the application begins and commits itself, as code with a repository, a
// unit of work or an ORM does. RequireTx refuses what was published outside of one.
//
//	go run ./examples/own-transaction
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	_ "modernc.org/sqlite"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/middleware"
)

func main() {
	slog.SetLogLoggerLevel(slog.LevelWarn) // leaves the output readable
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	if err := run(ctx, stop); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, stop func()) error {
	dir, err := os.MkdirTemp("", "outbox-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	dsn := "file:" + filepath.ToSlash(dir) + "/shop.db?_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)&_txlock=immediate"
	db, err := outbox.OpenSQLite("sqlite", dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	if err := outbox.Migrate(ctx, db, outbox.MigrateConfig{Dialect: outbox.SQLite{}}); err != nil {
		return err
	}
	if _, err := db.ExecContext(ctx, "CREATE TABLE orders (item TEXT UNIQUE)"); err != nil {
		return err
	}

	logger := watermill.NewSlogLogger(nil)
	publisher, err := outbox.NewPublisher(db, outbox.PublisherConfig{Dialect: outbox.SQLite{}, RequireTx: true}, logger)
	if err != nil {
		return err
	}
	subscriber, err := outbox.NewSubscriber(db, outbox.SubscriberConfig{Dialect: outbox.SQLite{}}, logger)
	if err != nil {
		return err
	}
	router, err := message.NewRouter(message.RouterConfig{}, logger)
	if err != nil {
		return err
	}
	router.AddMiddleware(middleware.Outcome)
	router.AddConsumerHandler("ship", "orders", subscriber, func(msg *message.Message) error {
		fmt.Printf("shipped %s\n", msg.Payload)
		stop() // the end of this program; a service runs on
		return nil
	})

	if err := placeOrder(ctx, db, publisher, "socks"); err != nil {
		return err
	}
	fmt.Println("ordered socks")
	fmt.Println("rolled back the same again:", placeOrder(ctx, db, publisher, "socks")) // and its message with it
	forgotten := publisher.Publish("orders", message.NewMessage(watermill.NewUUID(), []byte("gloves")))
	fmt.Println("refused without a transaction:", errors.Is(forgotten, outbox.ErrTxRequired))

	err = router.Run(ctx)                       // until ctx ends
	return errors.Join(err, subscriber.Close()) // before the database
}

func placeOrder(ctx context.Context, db *sql.DB, publisher message.Publisher, item string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after the commit

	// Publish finds the transaction in the context of the message.
	msg := message.NewMessageWithContext(outbox.WithTx(ctx, tx), watermill.NewUUID(), []byte(item))
	if err := publisher.Publish("orders", msg); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO orders (item) VALUES ($1)", item); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	outbox.Wake("orders") // the subscribers of this process claim at once; without it the next poll finds the message
	return nil
}
