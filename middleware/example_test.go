package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/middleware"
)

// What a handler writes, the messages that it returns and the end of its own message are one transaction.
func ExampleTransaction() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "outbox")
	check(err)
	defer func() { check(os.RemoveAll(dir)) }()
	db, err := outbox.OpenSQLite("sqlite", "file:"+filepath.Join(dir, "shop.db")+
		"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)&_txlock=immediate")
	check(err)
	defer func() { check(db.Close()) }()
	check(outbox.Migrate(ctx, db, outbox.MigrateConfig{Dialect: outbox.SQLite{}}))
	_, err = db.ExecContext(ctx, "CREATE TABLE shipments (what TEXT)")
	check(err)

	publisher, err := outbox.NewPublisher(db, outbox.PublisherConfig{Dialect: outbox.SQLite{}}, nil)
	check(err)
	subscriber, err := outbox.NewSubscriber(db, outbox.SubscriberConfig{Dialect: outbox.SQLite{}}, nil)
	check(err)
	router, err := message.NewRouter(message.RouterConfig{}, nil)
	check(err)
	transaction, err := middleware.Transaction(db, middleware.TransactionConfig{Publisher: publisher})
	check(err)
	router.AddMiddleware(middleware.Outcome, transaction)
	router.AddHandler("ship", "ordered", subscriber, "shipped", publisher, func(msg *message.Message) ([]*message.Message, error) {
		tx, _ := outbox.TxFrom(msg.Context())
		_, err := tx.ExecContext(msg.Context(), "INSERT INTO shipments (what) VALUES (?)", string(msg.Payload))
		return []*message.Message{message.NewMessage(watermill.NewUUID(), msg.Payload)}, err
	})
	router.AddHandler("tell", "shipped", subscriber, "told", publisher, func(msg *message.Message) ([]*message.Message, error) {
		tx, _ := outbox.TxFrom(msg.Context())
		var n int
		err := tx.QueryRowContext(msg.Context(), "SELECT COUNT(*) FROM shipments").Scan(&n)
		fmt.Println(n, "shipment of", string(msg.Payload))
		return []*message.Message{message.NewMessage(watermill.NewUUID(), nil)}, err
	})
	told, err := subscriber.Subscribe(ctx, "told")
	check(err)
	stopped := make(chan error, 1)
	go func() { stopped <- router.Run(ctx) }()

	check(publisher.Publish("ordered", message.NewMessage(watermill.NewUUID(), []byte("a book"))))
	(<-told).Ack()
	check(errors.Join(router.Close(), <-stopped, subscriber.Close()))
	// Output: 1 shipment of a book
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
