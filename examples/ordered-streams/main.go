// Ordered-streams handles what happens to two products over three competing workers: each product's messages in order, one at
// a time. One of the workers stops in the middle; another goes on from there.
//
//	go run ./examples/ordered-streams
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
	"sync/atomic"
	"syscall"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"golang.org/x/sync/errgroup"
	_ "modernc.org/sqlite"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/middleware"
)

const workers = 3

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
	if err := publish(ctx, db); err != nil {
		return err
	}

	shop := &shop{done: stop}
	group, ctx := errgroup.WithContext(ctx)
	for range workers {
		group.Go(func() error { return shop.work(ctx, db) })
	}
	return group.Wait()
}

// publish says what has happened to the products. Messages with the same StreamKey are a stream: those of a product.
func publish(ctx context.Context, db *sql.DB) error {
	publisher, err := outbox.NewPublisher(db, outbox.PublisherConfig{
		Dialect:   outbox.SQLite{},
		StreamKey: func(_ string, msg *message.Message) string { return msg.Metadata.Get("product") },
	}, nil)
	if err != nil {
		return err
	}
	for _, event := range []string{"created", "repriced to 12", "repriced to 9"} {
		for _, product := range []string{"socks", "gloves"} {
			msg := message.NewMessageWithContext(ctx, watermill.NewUUID(), []byte(event))
			msg.Metadata.Set("product", product)
			if err := publisher.Publish("products", msg); err != nil {
				return err
			}
		}
	}
	return nil
}

type shop struct {
	handled atomic.Int32
	done    func()
}

// work is what each process of a service does, with a router and a subscriber of its own.
func (s *shop) work(ctx context.Context, db *sql.DB) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	logger := watermill.NewSlogLogger(nil)
	subscriber, err := outbox.NewSubscriber(db, outbox.SubscriberConfig{
		Dialect:        outbox.SQLite{},
		MaxInFlight:    1,
		AllowCompeting: true, // these share a process; workers in processes of their own need not say so
	}, logger)
	if err != nil {
		return err
	}
	router, err := message.NewRouter(message.RouterConfig{}, logger)
	if err != nil {
		return err
	}
	router.AddMiddleware(middleware.Outcome)
	router.AddConsumerHandler("prices", "products", subscriber, func(msg *message.Message) error { return s.price(msg, stop) })
	err = router.Run(ctx)
	return errors.Join(err, subscriber.Close()) // gives back what it has claimed and not handled
}

// price updates the price list. The worker that comes first to socks for 12 stops there: another tries again, and the next price
// of socks waits for it.
func (s *shop) price(msg *message.Message, stopWorker func()) error {
	delivery, ok := outbox.DeliveryFrom(msg.Context())
	if !ok {
		return errors.New("the message does not come from an outbox")
	}
	product, event := delivery.StreamKey(), string(msg.Payload)
	if event == "repriced to 12" && product == "socks" && delivery.Attempt() == 1 {
		fmt.Printf("%s: %s: a worker stops in the middle\n", product, event)
		stopWorker()
		return errors.New("the worker stops")
	}
	fmt.Printf("%s: %s\n", product, event)
	if s.handled.Add(1) == 6 {
		s.done() // the end of this program; a service runs on
	}
	return nil
}
