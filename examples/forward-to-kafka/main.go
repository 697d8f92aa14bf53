// Forward-to-kafka relays orders from the outbox to Kafka and reads them there. The orders of one customer have a stream
// key, which is the key of the record: they stay in order.
//
//	go run ./examples/forward-to-kafka -brokers localhost:9092
//
// It writes to the topic outbox-example-orders, which has to be there unless the broker creates topics by itself.
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
	"strings"
	"syscall"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"
	_ "modernc.org/sqlite"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/forwarder"
	"github.com/incursa/watermill-outbox/forwarder/kafka"
)

const topic = "outbox-example-orders"

func main() {
	slog.SetLogLoggerLevel(slog.LevelWarn) // leaves the output readable
	brokers := flag.String("brokers", os.Getenv("KAFKA_BROKERS"), "the `ADDRESSES` of a Kafka, host:port,host:port (default $KAFKA_BROKERS)")
	flag.Parse()
	if *brokers == "" {
		fmt.Fprintln(os.Stderr, `This example needs a Kafka. Start one with

	docker run --rm -p 9092:9092 apache/kafka:4.1.0

and run this again with -brokers localhost:9092.`)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	if err := run(ctx, stop, strings.Split(*brokers, ",")); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, stop func(), brokers []string) error {
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
	placed, err := placeOrders(db)
	if err != nil {
		return err
	}

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return forward(ctx, db, brokers) })
	group.Go(func() error {
		defer stop() // the end of this program; a service runs on
		return consume(ctx, brokers, placed)
	})
	return group.Wait()
}

// placeOrders is the application. It knows nothing of Kafka, which need not be there. It returns the UUIDs of its messages.
func placeOrders(db *sql.DB) (placed map[string]bool, err error) {
	publisher, err := outbox.NewPublisher(db, outbox.PublisherConfig{Dialect: outbox.SQLite{}}, watermill.NewSlogLogger(nil))
	if err != nil {
		return nil, err
	}
	placed = map[string]bool{}
	for _, item := range []string{"socks", "gloves", "scarf"} {
		msg := message.NewMessage(watermill.NewUUID(), []byte(item))
		msg.Metadata.Set(outbox.HeaderStreamKey, "customer-1")
		if err := publisher.Publish(topic, msg); err != nil {
			return nil, err
		}
		placed[msg.UUID] = true
		fmt.Printf("ordered %s\n", item)
	}
	return placed, nil
}

// forward runs beside the application, or in any number of processes of its own.
func forward(ctx context.Context, db *sql.DB, brokers []string) error {
	logger := watermill.NewSlogLogger(nil)
	publisher, err := kafka.NewPublisher(kafka.Config{
		Brokers: brokers,
		Options: []kgo.Opt{kgo.AllowAutoTopicCreation()}, // in production, topics are there before
	}, logger)
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

// consume is another service, here without a router. It reads the topic from its beginning, until it has seen these messages.
func consume(ctx context.Context, brokers []string, placed map[string]bool) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(topic))
	if err != nil {
		return err
	}
	defer client.Close()
	for len(placed) > 0 && ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil && ctx.Err() == nil {
			return err
		}
		fetches.EachRecord(func(record *kgo.Record) {
			msg := kafka.DefaultMarshaler{}.Unmarshal(record) // or watermill-kafka's subscriber
			if placed[msg.UUID] {
				fmt.Printf("shipped %s of %s, offset %d\n", msg.Payload, record.Key, record.Offset)
			}
			delete(placed, msg.UUID)
		})
	}
	return nil
}
