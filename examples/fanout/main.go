// Fanout copies each order from the log to two topics, billing and shipping, whose handlers retry and fail on their own.
//
//	go run ./examples/fanout
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
	"github.com/incursa/watermill-outbox/fanout"
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
	return fanOut(ctx, db, stop)
}

func fanOut(ctx context.Context, db *sql.DB, stop func()) error {
	logger := watermill.NewSlogLogger(nil)
	publisher, err := outbox.NewPublisher(db, outbox.PublisherConfig{Dialect: outbox.SQLite{}, Log: outbox.LogOnly}, logger)
	if err != nil {
		return err
	}
	sequencer, err := outbox.NewSequencer(db, outbox.SequencerConfig{Dialect: outbox.SQLite{}}, logger)
	if err != nil {
		return err
	}
	dispatcher, err := fanout.NewDispatcher(db, fanout.Config{
		Dialect: outbox.SQLite{},
		Policies: []fanout.Policy{{
			Name:         "orders",
			Topics:       "orders.*",
			Destinations: []fanout.Destination{fanout.ToTopic("billing"), fanout.ToTopic("shipping")},
		}},
	}, logger)
	if err != nil {
		return err
	}
	subscriber, err := outbox.NewSubscriber(db, outbox.SubscriberConfig{Dialect: outbox.SQLite{}}, logger)
	if err != nil {
		return err
	}

	topics := []string{"orders.eu", "orders.us"}
	for _, topic := range topics {
		if err := publisher.Publish(topic, message.NewMessage(watermill.NewUUID(), []byte("socks"))); err != nil {
			return err
		}
		fmt.Printf("published socks to %s\n", topic)
	}

	router, err := message.NewRouter(message.RouterConfig{}, logger)
	if err != nil {
		return err
	}
	var left atomic.Int32
	left.Store(int32(2 * len(topics)))
	handler := func(msg *message.Message) error {
		fmt.Printf("%s gets %s of %s\n", message.SubscribeTopicFromCtx(msg.Context()), msg.Payload, msg.Metadata.Get(fanout.HeaderTopic))
		if left.Add(-1) == 0 {
			stop() // the end of this program; a service runs on
		}
		return nil
	}
	router.AddMiddleware(middleware.Outcome)
	router.AddConsumerHandler("bill", "billing", subscriber, handler)
	router.AddConsumerHandler("ship", "shipping", subscriber, handler)

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return sequencer.Run(ctx) })
	group.Go(func() error { return dispatcher.Run(ctx) })
	group.Go(func() error { return router.Run(ctx) })
	return errors.Join(group.Wait(), subscriber.Close()) // before the database
}
