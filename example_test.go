package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/middleware"
)

// An order and its message in one transaction, and the handler that gets the message.
func Example() {
	ctx := context.Background()
	db, closeDB := openExample(ctx) // outbox.OpenSQLite, outbox.Migrate, CREATE TABLE orders
	defer closeDB()
	publisher, err := outbox.NewPublisher(db, outbox.PublisherConfig{Dialect: outbox.SQLite{}}, nil)
	check(err)
	subscriber, err := outbox.NewSubscriber(db, outbox.SubscriberConfig{Dialect: outbox.SQLite{}}, nil)
	check(err)
	router := message.NewDefaultRouter(nil)

	router.AddConsumerHandler("ship", "orders", subscriber, func(msg *message.Message) error {
		fmt.Println("ship", string(msg.Payload))
		return nil
	})
	err = outbox.InTx(ctx, db, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders (item) VALUES ('socks')"); err != nil {
			return err // and nothing is sent
		}
		return publisher.Publish("orders", message.NewMessageWithContext(ctx, watermill.NewUUID(), []byte("socks")))
	})

	check(err)
	runUntilHandled(ctx, router, subscriber, 1)
	// Output: ship socks
}

// What is rolled back was never sent.
func ExampleInTx() {
	ctx := context.Background()
	db, closeDB := openExample(ctx)
	defer closeDB()
	publisher, err := outbox.NewPublisher(db, outbox.PublisherConfig{Dialect: outbox.SQLite{}}, nil)
	check(err)

	placeOrder := func(item string) error {
		return outbox.InTx(ctx, db, func(ctx context.Context, tx *sql.Tx) error {
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
	fmt.Println("socks:", placeOrder("socks"))
	fmt.Println("unicorn:", placeOrder("unicorn"))

	o, err := outbox.New(db, outbox.Config{Dialect: outbox.SQLite{}}, nil)
	check(err)
	topics, err := o.Topics(ctx)
	check(err)
	for _, t := range topics {
		fmt.Printf("%d waiting on %s\n", t.Waiting, t.Topic)
	}
	// Output:
	// socks: <nil>
	// unicorn: there are no unicorns
	// 1 waiting on orders
}

// Your own transaction: put it into the context of the messages, and wake the subscribers once it is committed.
func ExampleWithTx() {
	ctx := context.Background()
	db, closeDB := openExample(ctx)
	defer closeDB()
	publisher, err := outbox.NewPublisher(nil, outbox.PublisherConfig{Dialect: outbox.SQLite{}, RequireTx: true}, nil)
	check(err)

	tx, err := db.BeginTx(ctx, nil)
	check(err)
	defer func() { _ = tx.Rollback() }()
	_, err = tx.ExecContext(ctx, "INSERT INTO orders (item) VALUES ('socks')")
	check(err)
	msg := message.NewMessageWithContext(outbox.WithTx(ctx, tx), watermill.NewUUID(), []byte("socks"))
	check(publisher.Publish("orders", msg))
	check(tx.Commit())
	outbox.Wake("orders") // optional: without it the next poll finds the message

	msg = message.NewMessage(watermill.NewUUID(), []byte("socks"))
	fmt.Println(errors.Is(publisher.Publish("orders", msg), outbox.ErrTxRequired))
	// Output: true
}

// One Publisher serves Watermill's CQRS buses in any number of transactions: the bus passes its context on to the
// message, and the Publisher finds the transaction there.
func ExamplePublisher() {
	ctx := context.Background()
	db, closeDB := openExample(ctx)
	defer closeDB()
	publisher, err := outbox.NewPublisher(db, outbox.PublisherConfig{Dialect: outbox.SQLite{}, RequireTx: true}, nil)
	check(err)
	subscriber, err := outbox.NewSubscriber(db, outbox.SubscriberConfig{Dialect: outbox.SQLite{}}, nil)
	check(err)

	type OrderPlaced struct{ Item string }
	marshaler := cqrs.JSONMarshaler{GenerateName: cqrs.StructName}
	bus, err := cqrs.NewEventBusWithConfig(publisher, cqrs.EventBusConfig{
		GeneratePublishTopic: func(p cqrs.GenerateEventPublishTopicParams) (string, error) { return p.EventName, nil },
		Marshaler:            marshaler,
	})
	check(err)
	router := message.NewDefaultRouter(nil)
	processor, err := cqrs.NewEventProcessorWithConfig(router, cqrs.EventProcessorConfig{
		GenerateSubscribeTopic: func(p cqrs.EventProcessorGenerateSubscribeTopicParams) (string, error) {
			return p.EventName, nil
		},
		// One Subscriber for all handlers: one claim loop serves all their topics.
		SubscriberConstructor: func(cqrs.EventProcessorSubscriberConstructorParams) (message.Subscriber, error) {
			return subscriber, nil
		},
		Marshaler: marshaler,
	})
	check(err)
	check(processor.AddHandlers(cqrs.NewEventHandler("ship", func(_ context.Context, event *OrderPlaced) error {
		fmt.Println("ship", event.Item)
		return nil
	})))

	fmt.Println("outside:", errors.Is(bus.Publish(ctx, OrderPlaced{"socks"}), outbox.ErrTxRequired))
	check(outbox.InTx(ctx, db, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders (item) VALUES ('socks')"); err != nil {
			return err
		}
		return bus.Publish(ctx, OrderPlaced{"socks"})
	}))
	runUntilHandled(ctx, router, subscriber, 1)
	// Output:
	// outside: true
	// ship socks
}

// A handler whose effects are in the same database settles its message in its own transaction: both happen, or none.
// Here the first attempt fails after its update; the update is rolled back with it, and counts once.
func ExampleDelivery_SettleTx() {
	ctx := context.Background()
	db, closeDB := openExample(ctx)
	defer closeDB()
	_, err := db.ExecContext(ctx, "CREATE TABLE stock (item TEXT, n INTEGER); INSERT INTO stock VALUES ('socks', 10)")
	check(err)
	publisher, err := outbox.NewPublisher(db, outbox.PublisherConfig{Dialect: outbox.SQLite{}}, nil)
	check(err)
	subscriber, err := outbox.NewSubscriber(db, outbox.SubscriberConfig{
		Dialect: outbox.SQLite{},
		Backoff: outbox.ExponentialBackoff(time.Millisecond, time.Second),
	}, nil)
	check(err)
	router := message.NewDefaultRouter(nil)
	router.AddMiddleware(middleware.Outcome)

	router.AddConsumerHandler("reserve", "orders", subscriber, func(msg *message.Message) error {
		delivery, ok := outbox.DeliveryFrom(msg.Context())
		if !ok {
			return errors.New("the message does not come from an outbox")
		}
		return outbox.InTx(msg.Context(), db, func(ctx context.Context, tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, "UPDATE stock SET n = n - 1 WHERE item = ?", string(msg.Payload)); err != nil {
				return err
			}
			if err := delivery.SettleTx(ctx, tx, outbox.Ack); err != nil {
				return err // ErrLeaseLost: another worker may have the message
			}
			fmt.Println("attempt", delivery.Attempt())
			if delivery.Attempt() == 1 {
				return errors.New("the first attempt fails")
			}
			return nil // commits the stock and the ack
		})
	})
	check(publisher.Publish("orders", message.NewMessage(watermill.NewUUID(), []byte("socks"))))
	runUntilHandled(ctx, router, subscriber, 1)

	var n int
	check(db.QueryRowContext(ctx, "SELECT n FROM stock").Scan(&n))
	fmt.Println("stock", n)
	// Output:
	// attempt 1
	// attempt 2
	// stock 9
}

// An error that retrying cannot fix fails the message at once. It stays in the table with its error, until it is
// requeued or purged.
func ExamplePermanent() {
	ctx := context.Background()
	db, closeDB := openExample(ctx)
	defer closeDB()
	o, err := outbox.New(db, outbox.Config{Dialect: outbox.SQLite{}}, nil)
	check(err)
	ids, err := o.Enqueue(ctx, db, outbox.Message{Topic: "orders", Payload: []byte("unicorn")})
	check(err)

	failed := make(chan struct{})
	subscriber, err := outbox.NewSubscriber(db, outbox.SubscriberConfig{
		Dialect: outbox.SQLite{},
		Hooks: outbox.Hooks{OnSettle: func(e outbox.SettleEvent) {
			if e.Outcomes[outbox.Fail] > 0 {
				close(failed)
			}
		}},
	}, nil)
	check(err)
	router := message.NewDefaultRouter(nil)
	router.AddMiddleware(middleware.Outcome) // passes the error from the router to the row
	router.AddConsumerHandler("ship", "orders", subscriber, func(*message.Message) error {
		return outbox.Permanent(errors.New("there are no unicorns"))
	})
	go func() { check(router.Run(ctx)) }()
	<-failed
	check(router.Close())
	check(subscriber.Close())

	records, err := o.Get(ctx, ids...)
	check(err)
	fmt.Println(records[0].Status, "-", records[0].LastError)
	n, err := o.Requeue(ctx, outbox.RequeueParams{IDs: ids})
	check(err)
	fmt.Println("requeued", n)
	// Output:
	// failed - there are no unicorns
	// requeued 1
}

// openExample returns a new SQLite database with an outbox and a table of orders, and what removes it.
func openExample(ctx context.Context) (db *sql.DB, closeDB func()) {
	dir, err := os.MkdirTemp("", "outbox")
	check(err)
	dsn := "file:" + filepath.ToSlash(filepath.Join(dir, "shop.db")) + "?_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)&_txlock=immediate"
	db, err = outbox.OpenSQLite("sqlite", dsn)
	check(err)
	check(outbox.Migrate(ctx, db, outbox.MigrateConfig{Dialect: outbox.SQLite{}}))
	_, err = db.ExecContext(ctx, "CREATE TABLE orders (item TEXT)")
	check(err)
	return db, func() {
		check(db.Close())
		check(os.RemoveAll(dir))
	}
}

// runUntilHandled runs the router until n messages have been handled, and returns when they are settled.
func runUntilHandled(ctx context.Context, router *message.Router, subscriber message.Subscriber, n int32) {
	handled := make(chan struct{})
	var count atomic.Int32
	router.AddMiddleware(func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			produced, err := next(msg)
			if err == nil && count.Add(1) == n {
				close(handled)
			}
			return produced, err
		}
	})
	ran := make(chan error)
	go func() { ran <- router.Run(ctx) }()
	<-handled
	check(router.Close())
	check(<-ran)
	check(subscriber.Close()) // returns when all that was acked is settled
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
