// Existing-router moves a Watermill router from another Pub/Sub onto the outbox. Its handlers stay as they are: they know
// Watermill's interfaces only. What changes is the wiring, marked with "was".
//
//	go run ./examples/existing-router
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
	wmmiddleware "github.com/ThreeDotsLabs/watermill/message/router/middleware"
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
	if _, err := db.ExecContext(ctx, "CREATE TABLE orders (item TEXT)"); err != nil {
		return err
	}
	// New. In production, Migrate runs with the other migrations, and outbox.Check when a service starts.
	if err := outbox.Migrate(ctx, db, outbox.MigrateConfig{Dialect: outbox.SQLite{}}); err != nil {
		return err
	}

	logger := watermill.NewSlogLogger(nil)
	// was: publisher, err := amqp.NewPublisher(amqpConfig, logger)
	publisher, err := outbox.NewPublisher(db, outbox.PublisherConfig{Dialect: outbox.SQLite{}}, logger)
	if err != nil {
		return err
	}
	// was: subscriber, err := amqp.NewSubscriber(amqpConfig, logger)
	subscriber, err := outbox.NewSubscriber(db, outbox.SubscriberConfig{Dialect: outbox.SQLite{}}, logger)
	if err != nil {
		return err
	}

	router, err := message.NewRouter(message.RouterConfig{}, logger)
	if err != nil {
		return err
	}
	// was: router.AddMiddleware(poisonQueue, retry, wmmiddleware.CorrelationID, wmmiddleware.Recoverer)
	// The outbox itself retries with a backoff, and keeps dead letters. Outcome goes first.
	router.AddMiddleware(middleware.Outcome, wmmiddleware.CorrelationID, wmmiddleware.Recoverer)
	addHandlers(router, publisher, subscriber, stop)

	if err := placeOrder(ctx, db, publisher, "socks"); err != nil {
		return err
	}
	err = router.Run(ctx)                       // until ctx ends
	return errors.Join(err, subscriber.Close()) // before the database
}

// addHandlers has not changed.
func addHandlers(router *message.Router, publisher message.Publisher, subscriber message.Subscriber, stop func()) {
	router.AddHandler("invoice", "orders", subscriber, "invoices", publisher, func(msg *message.Message) ([]*message.Message, error) {
		fmt.Printf("invoice for %s\n", msg.Payload)
		return []*message.Message{message.NewMessage(watermill.NewUUID(), []byte("invoice for "+string(msg.Payload)))}, nil
	})
	router.AddConsumerHandler("mail", "invoices", subscriber, func(msg *message.Message) error {
		fmt.Printf("mailed the %s, correlation id %s\n", msg.Payload, wmmiddleware.MessageCorrelationID(msg))
		stop() // the end of this program; a service runs on
		return nil
	})
}

// placeOrder used to commit the order and then publish. A crash between the two lost the message.
func placeOrder(ctx context.Context, db *sql.DB, publisher message.Publisher, item string) error {
	// was: tx, err := db.BeginTx(ctx, nil)
	return outbox.InTx(ctx, db, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders (item) VALUES ($1)", item); err != nil {
			return err
		}
		// was: tx.Commit(), and then msg := message.NewMessage(…)
		msg := message.NewMessageWithContext(ctx, watermill.NewUUID(), []byte(item))
		wmmiddleware.SetCorrelationID("order-1", msg)
		fmt.Printf("ordered %s\n", item)
		return publisher.Publish("orders", msg)
	})
}
