package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

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
		_, err := tx.ExecContext(msg.Context(), "INSERT INTO shipments (what) VALUES ($1)", string(msg.Payload))
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

// Charging succeeds and mailing fails: the next attempt only mails.
func ExampleStages() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "outbox")
	check(err)
	defer func() { check(os.RemoveAll(dir)) }()
	db, err := outbox.OpenSQLite("sqlite", "file:"+filepath.Join(dir, "shop.db")+
		"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)&_txlock=immediate")
	check(err)
	defer func() { check(db.Close()) }()
	check(outbox.Migrate(ctx, db, outbox.MigrateConfig{Dialect: outbox.SQLite{}}))
	_, err = db.ExecContext(ctx, "CREATE TABLE charges (what TEXT)")
	check(err)

	const ( // stored as bits: append, and never give the bit of one to another
		charged = middleware.OwnStage << iota
		mailed
	)
	done, mails := make(chan struct{}), 0
	handler, err := middleware.Stages(
		middleware.Stage{Bit: charged, Name: "charge", DB: db, Run: func(msg *message.Message) error {
			fmt.Println("charge", string(msg.Payload))
			tx, _ := outbox.TxFrom(msg.Context())
			_, err := tx.ExecContext(msg.Context(), "INSERT INTO charges (what) VALUES ($1)", string(msg.Payload))
			return err
		}},
		middleware.Stage{Bit: mailed, Name: "mail", Run: func(msg *message.Message) error {
			if mails++; mails == 1 {
				return errors.New("the mail server is away")
			}
			fmt.Println("mail, at try", mails)
			close(done)
			return nil
		}},
	)
	check(err)

	publisher, err := outbox.NewPublisher(db, outbox.PublisherConfig{Dialect: outbox.SQLite{}}, nil)
	check(err)
	subscriber, err := outbox.NewSubscriber(db, outbox.SubscriberConfig{
		Dialect: outbox.SQLite{},
		Backoff: func(int) time.Duration { return time.Millisecond },
	}, nil)
	check(err)
	router, err := message.NewRouter(message.RouterConfig{}, nil)
	check(err)
	router.AddMiddleware(middleware.Outcome)
	router.AddConsumerHandler("order", "orders", subscriber, handler)
	stopped := make(chan error, 1)
	go func() { stopped <- router.Run(ctx) }()

	check(publisher.Publish("orders", message.NewMessage(watermill.NewUUID(), []byte("a book"))))
	<-done
	check(errors.Join(router.Close(), <-stopped, subscriber.Close()))
	// Output:
	// charge a book
	// mail, at try 2
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
