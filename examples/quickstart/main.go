// Quickstart writes an order and its message in one transaction, and handles the message in a Watermill router. An order
// that is rolled back takes its message with it.
//
//	go run ./examples/quickstart
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
	dialect := outbox.SQLite{} // or Postgres{} with sql.Open("pgx", …), SQLServer{} with sql.Open("sqlserver", …)
	dsn := "file:" + filepath.ToSlash(dir) + "/shop.db?_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)&_txlock=immediate"
	db, err := outbox.OpenSQLite("sqlite", dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	if err := outbox.Migrate(ctx, db, outbox.MigrateConfig{Dialect: dialect}); err != nil {
		return err
	}
	if _, err := db.ExecContext(ctx, "CREATE TABLE orders (item TEXT)"); err != nil {
		return err
	}

	logger := watermill.NewSlogLogger(nil)
	publisher, err := outbox.NewPublisher(db, outbox.PublisherConfig{Dialect: dialect}, logger)
	if err != nil {
		return err
	}
	subscriber, err := outbox.NewSubscriber(db, outbox.SubscriberConfig{Dialect: dialect}, logger)
	if err != nil {
		return err
	}
	router, err := message.NewRouter(message.RouterConfig{}, logger)
	if err != nil {
		return err
	}
	router.AddMiddleware(middleware.Outcome) // first: it carries a handler's error to the message's row
	router.AddConsumerHandler("ship", "orders", subscriber, func(msg *message.Message) error {
		fmt.Printf("shipped %s\n", msg.Payload)
		stop() // the end of this program; a service runs on
		return nil
	})

	fmt.Println("rolled back unicorn:", placeOrder(ctx, db, publisher, "unicorn"))
	if err := placeOrder(ctx, db, publisher, "socks"); err != nil {
		return err
	}
	fmt.Println("ordered socks")

	err = router.Run(ctx)                       // until ctx ends
	return errors.Join(err, subscriber.Close()) // before the database
}

// placeOrder commits the order and its message together, or neither of them.
func placeOrder(ctx context.Context, db *sql.DB, publisher message.Publisher, item string) error {
	return outbox.InTx(ctx, db, func(ctx context.Context, tx *sql.Tx) error {
		// The message's context carries the transaction to the publisher.
		msg := message.NewMessageWithContext(ctx, watermill.NewUUID(), []byte(item))
		if err := publisher.Publish("orders", msg); err != nil {
			return err
		}
		if item == "unicorn" {
			return errors.New("there are no unicorns")
		}
		_, err := tx.ExecContext(ctx, "INSERT INTO orders (item) VALUES ($1)", item)
		return err
	})
}
