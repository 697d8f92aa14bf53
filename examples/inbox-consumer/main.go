// Inbox-consumer handles the messages of a broker that delivers some of them twice. middleware.Inbox commits a mark with
// what the handler writes, and so each payment is booked once.
//
//	go run ./examples/inbox-consumer
//
// The broker is Watermill's GoChannel, in the process. With RabbitMQ or Kafka the subscriber is another, and nothing else.
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
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"golang.org/x/sync/errgroup"
	_ "modernc.org/sqlite"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/inbox"
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
	dsn := "file:" + filepath.ToSlash(dir) + "/bank.db?_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)&_txlock=immediate"
	db, err := outbox.OpenSQLite("sqlite", dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	config := inbox.Config{Dialect: outbox.SQLite{}}
	if err := inbox.Migrate(ctx, db, config); err != nil {
		return err
	}
	if _, err := db.ExecContext(ctx, "CREATE TABLE payments (amount INTEGER)"); err != nil {
		return err
	}
	if err := consume(ctx, db, config, stop); err != nil {
		return err
	}

	var payments, sum int
	if err := db.QueryRow("SELECT COUNT(*), SUM(amount) FROM payments").Scan(&payments, &sum); err != nil {
		return err
	}
	fmt.Printf("%d payments, %d EUR\n", payments, sum)
	return nil
}

func consume(ctx context.Context, db *sql.DB, config inbox.Config, stop func()) error {
	logger := watermill.NewSlogLogger(nil)
	broker := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, logger)
	defer broker.Close()
	in, err := inbox.New(db, config, logger)
	if err != nil {
		return err
	}
	// A message is known by its UUID, or by another id that Identity finds in it.
	once, err := middleware.Inbox(in, inbox.Identity{Source: "shop"})
	if err != nil {
		return err
	}
	router, err := message.NewRouter(message.RouterConfig{}, logger)
	if err != nil {
		return err
	}
	router.AddMiddleware(once) // last, where there are others
	router.AddConsumerHandler("book", "payments", broker, book())

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return router.Run(ctx) })
	group.Go(func() error {
		defer stop() // the end of this program; a service runs on
		select {
		case <-router.Running():
			return deliver(broker)
		case <-ctx.Done():
			return nil
		}
	})
	return group.Wait()
}

// deliver is the broker: it delivers payment-1 three times, as RabbitMQ does when an ack is lost.
func deliver(broker message.Publisher) error {
	for _, id := range []string{"payment-1", "payment-1", "payment-2", "payment-1"} {
		fmt.Printf("the broker delivers %s\n", id)
		if err := broker.Publish("payments", message.NewMessage(id, []byte("30"))); err != nil {
			return err
		}
	}
	return nil
}

// book writes in the transaction of the inbox. What it wrote before an error is rolled back with its mark.
func book() message.NoPublishHandlerFunc {
	failed := false
	return func(msg *message.Message) error {
		tx, ok := outbox.TxFrom(msg.Context())
		if !ok {
			return errors.New("book needs middleware.Inbox")
		}
		if _, err := tx.ExecContext(msg.Context(), "INSERT INTO payments (amount) VALUES ($1)", string(msg.Payload)); err != nil {
			return err
		}
		if msg.UUID == "payment-2" && !failed {
			failed = true
			fmt.Printf("  %s fails after its INSERT, and comes again\n", msg.UUID)
			return errors.New("the bank does not answer")
		}
		fmt.Printf("  %s is booked\n", msg.UUID)
		return nil
	}
}
