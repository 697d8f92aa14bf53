// Forward-to-rabbitmq relays orders from the outbox to RabbitMQ, where watermill-amqp consumes them. A message is acked in
// the outbox once the broker has confirmed it.
//
//	go run ./examples/forward-to-rabbitmq -amqp amqp://guest:guest@localhost:5672/
//
// It declares the queue outbox-example-orders, and leaves it there.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"sync/atomic"
	"syscall"

	"github.com/ThreeDotsLabs/watermill"
	watermillamqp "github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	"golang.org/x/sync/errgroup"
	_ "modernc.org/sqlite"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/forwarder"
	"github.com/incursa/watermill-outbox/forwarder/amqp"
	"github.com/incursa/watermill-outbox/forwarder/amqp/wmamqp"
)

const topic = "outbox-example-orders" // in the outbox, and the name of the queue

func main() {
	slog.SetLogLoggerLevel(slog.LevelWarn) // leaves the output readable
	url := flag.String("amqp", os.Getenv("AMQP_URL"), "the `URL` of a RabbitMQ (default $AMQP_URL)")
	flag.Parse()
	if *url == "" {
		fmt.Fprintln(os.Stderr, `This example needs a RabbitMQ. Start one with

	docker run --rm -p 5672:5672 rabbitmq:4

and run this again with -amqp amqp://guest:guest@localhost:5672/.`)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	if err := run(ctx, stop, *url); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, stop func(), url string) error {
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
	orders := []string{"socks", "gloves", "scarf"}
	if err := placeOrders(db, orders); err != nil {
		return err
	}

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return forward(ctx, db, url) })
	group.Go(func() error { return consume(ctx, url, len(orders), stop) })
	return group.Wait()
}

// placeOrders is the application. It knows nothing of RabbitMQ, which need not be there.
func placeOrders(db *sql.DB, orders []string) error {
	publisher, err := outbox.NewPublisher(db, outbox.PublisherConfig{Dialect: outbox.SQLite{}}, watermill.NewSlogLogger(nil))
	if err != nil {
		return err
	}
	for _, item := range orders {
		if err := publisher.Publish(topic, message.NewMessage(watermill.NewUUID(), []byte(item))); err != nil {
			return err
		}
		fmt.Printf("ordered %s\n", item)
	}
	return nil
}

// forward runs beside the application, or in any number of processes of its own.
func forward(ctx context.Context, db *sql.DB, url string) error {
	logger := watermill.NewSlogLogger(nil)
	publisher, err := amqp.NewPublisher(amqp.Config{URL: url, DeclareQueues: []string{topic}}, logger)
	if err != nil {
		return err
	}
	f, err := forwarder.New(db, publisher, forwarder.Config{
		Topics:     []string{topic},
		Subscriber: outbox.SubscriberConfig{Dialect: outbox.SQLite{}},
	}, logger)
	if err != nil {
		return errors.Join(err, publisher.Close())
	}
	err = f.Run(ctx) // until ctx ends
	return errors.Join(err, publisher.Close())
}

// consume is another service. A message may reach it twice; inbox-consumer shows what to do about that.
func consume(ctx context.Context, url string, orders int, stop func()) error {
	logger := watermill.NewSlogLogger(nil)
	subscriber, err := watermillamqp.NewSubscriber(wmamqp.Config(url), logger)
	if err != nil {
		return err
	}
	router, err := message.NewRouter(message.RouterConfig{}, logger)
	if err != nil {
		return errors.Join(err, subscriber.Close())
	}
	var arrived atomic.Int32
	router.AddConsumerHandler("ship", topic, subscriber, func(msg *message.Message) error {
		fmt.Printf("shipped %s, which came by RabbitMQ\n", msg.Payload)
		if int(arrived.Add(1)) == orders {
			stop() // the end of this program; a service runs on
		}
		return nil
	})
	err = router.Run(ctx)
	return errors.Join(err, subscriber.Close())
}
