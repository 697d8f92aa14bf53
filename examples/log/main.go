// Log publishes to the outbox as a log: two consumer groups read every message, each in order and at its own pace.
//
//	go run ./examples/log
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
	return readLog(ctx, db, stop)
}

func readLog(ctx context.Context, db *sql.DB, stop func()) error {
	logger := watermill.NewSlogLogger(nil)
	publisher, err := outbox.NewPublisher(db, outbox.PublisherConfig{
		Dialect: outbox.SQLite{},
		Log:     outbox.LogOnly, // or QueueAndLog, for both
	}, logger)
	if err != nil {
		return err
	}
	// Gives what is committed its place in the log. One process must run it, any number may.
	sequencer, err := outbox.NewSequencer(db, outbox.SequencerConfig{Dialect: outbox.SQLite{}}, logger)
	if err != nil {
		return err
	}
	billing, err := outbox.NewSubscriber(db, outbox.SubscriberConfig{Dialect: outbox.SQLite{}, ConsumerGroup: "billing"}, logger)
	if err != nil {
		return err
	}
	shipping, err := outbox.NewSubscriber(db, outbox.SubscriberConfig{Dialect: outbox.SQLite{}, ConsumerGroup: "shipping"}, logger)
	if err != nil {
		return err
	}

	orders := []string{"socks", "gloves", "scarf"}
	for _, item := range orders {
		if err := publisher.Publish("orders", message.NewMessage(watermill.NewUUID(), []byte(item))); err != nil {
			return err
		}
		fmt.Printf("ordered %s\n", item)
	}

	router, err := message.NewRouter(message.RouterConfig{}, logger)
	if err != nil {
		return err
	}
	var left atomic.Int32
	left.Store(int32(2 * len(orders)))
	handler := func(msg *message.Message) error {
		delivery, ok := outbox.DeliveryFrom(msg.Context())
		if !ok {
			return errors.New("the message does not come from an outbox")
		}
		fmt.Printf("%s reads position %d: %s\n", delivery.Group(), delivery.Position(), msg.Payload)
		if left.Add(-1) == 0 {
			stop() // the end of this program; a service runs on
		}
		return nil
	}
	router.AddMiddleware(middleware.Outcome)
	router.AddConsumerHandler("billing", "orders", billing, handler)
	router.AddConsumerHandler("shipping", "orders", shipping, handler)

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return sequencer.Run(ctx) })
	group.Go(func() error { return router.Run(ctx) })
	return errors.Join(group.Wait(), billing.Close(), shipping.Close()) // before the database
}
