// Exactly-once commits what a handler writes, the message that it returns and the end of its own message in one
// transaction, by middleware.Transaction. The handler fails after its first UPDATE, is called again, and the stock has gone
// down once.
//
//	go run ./examples/exactly-once
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
	slog.SetLogLoggerLevel(slog.LevelError + 1) // Watermill logs the error of the handler; here it is printed
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
	_, err = db.ExecContext(ctx, "CREATE TABLE stock (item TEXT, n INTEGER); INSERT INTO stock VALUES ('socks', 10)")
	if err != nil {
		return err
	}
	if err := takeOrder(ctx, db, stop); err != nil {
		return err
	}

	var n int
	if err := db.QueryRow("SELECT n FROM stock WHERE item = 'socks'").Scan(&n); err != nil {
		return err
	}
	fmt.Printf("%d of 10 are left\n", n)
	return nil
}

func takeOrder(ctx context.Context, db *sql.DB, stop func()) error {
	logger := watermill.NewSlogLogger(nil)
	publisher, err := outbox.NewPublisher(db, outbox.PublisherConfig{Dialect: outbox.SQLite{}}, logger)
	if err != nil {
		return err
	}
	subscriber, err := outbox.NewSubscriber(db, outbox.SubscriberConfig{Dialect: outbox.SQLite{}}, logger)
	if err != nil {
		return err
	}
	// The publisher is for the messages that handlers return.
	transaction, err := middleware.Transaction(db, middleware.TransactionConfig{Publisher: publisher})
	if err != nil {
		return err
	}
	router, err := message.NewRouter(message.RouterConfig{}, logger)
	if err != nil {
		return err
	}
	router.AddMiddleware(middleware.Outcome, transaction)
	router.AddHandler("reserve", "orders", subscriber, "parcels", publisher, reserve)
	router.AddConsumerHandler("ship", "parcels", subscriber, func(msg *message.Message) error {
		fmt.Printf("shipped %s\n", msg.Payload)
		stop() // the end of this program; a service runs on
		return nil
	})

	if err := publisher.Publish("orders", message.NewMessage(watermill.NewUUID(), []byte("socks"))); err != nil {
		return err
	}
	err = router.Run(ctx)                       // until ctx ends
	return errors.Join(err, subscriber.Close()) // before the database
}

// reserve takes an item from the stock in the transaction of the middleware, and returns what is to be shipped. If it fails,
// neither has happened, and it is called again.
func reserve(msg *message.Message) ([]*message.Message, error) {
	delivery, isDelivery := outbox.DeliveryFrom(msg.Context())
	tx, inTx := outbox.TxFrom(msg.Context())
	if !isDelivery || !inTx {
		return nil, errors.New("reserve needs an outbox, and middleware.Transaction")
	}
	_, err := tx.ExecContext(msg.Context(), "UPDATE stock SET n = n - 1 WHERE item = $1", string(msg.Payload))
	if err != nil {
		return nil, err
	}
	if delivery.Attempt() == 1 {
		fmt.Println("attempt 1 has taken one from the stock, and fails")
		return nil, errors.New("the power is out")
	}
	fmt.Printf("attempt %d has taken one from the stock\n", delivery.Attempt())
	return []*message.Message{message.NewMessage(watermill.NewUUID(), msg.Payload)}, nil
}
