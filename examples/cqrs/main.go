// Cqrs runs Watermill's cqrs component over the outbox. A command, the row that it writes and the event that it publishes
// are one transaction, and two handlers get the event.
//
//	go run ./examples/cqrs
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/message"
	_ "modernc.org/sqlite"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/middleware"
)

type PlaceOrder struct{ Item string }

type OrderPlaced struct{ Item string }

var marshaler = cqrs.JSONMarshaler{GenerateName: cqrs.StructName}

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
	if _, err := db.ExecContext(ctx, "CREATE TABLE orders (item TEXT)"); err != nil {
		return err
	}

	logger := watermill.NewSlogLogger(nil)
	publisher, err := outbox.NewPublisher(db, outbox.PublisherConfig{Dialect: outbox.SQLite{}}, logger)
	if err != nil {
		return err
	}
	subscriber, err := outbox.NewSubscriber(db, outbox.SubscriberConfig{Dialect: outbox.SQLite{}}, logger) // one for all topics
	if err != nil {
		return err
	}
	router, err := message.NewRouter(message.RouterConfig{}, logger)
	if err != nil {
		return err
	}
	transaction, err := middleware.Transaction(db, middleware.TransactionConfig{})
	if err != nil {
		return err
	}
	router.AddMiddleware(middleware.Outcome, transaction)
	err = errors.Join(addCommandHandlers(router, publisher, subscriber), addEventHandlers(router, subscriber, stop))
	if err != nil {
		return err
	}

	commands, err := cqrs.NewCommandBusWithConfig(publisher, cqrs.CommandBusConfig{
		GeneratePublishTopic: func(p cqrs.CommandBusGeneratePublishTopicParams) (string, error) { return p.CommandName, nil },
		Marshaler:            marshaler,
	})
	if err != nil {
		return err
	}
	if err := commands.Send(ctx, PlaceOrder{Item: "socks"}); err != nil {
		return err
	}
	err = router.Run(ctx)                       // until ctx ends
	return errors.Join(err, subscriber.Close()) // before the database
}

func addCommandHandlers(router *message.Router, publisher message.Publisher, subscriber message.Subscriber) error {
	events, err := cqrs.NewEventBusWithConfig(publisher, cqrs.EventBusConfig{
		GeneratePublishTopic: func(cqrs.GenerateEventPublishTopicParams) (string, error) { return "events", nil },
		Marshaler:            marshaler,
	})
	if err != nil {
		return err
	}
	processor, err := cqrs.NewCommandProcessorWithConfig(router, cqrs.CommandProcessorConfig{
		GenerateSubscribeTopic: func(p cqrs.CommandProcessorGenerateSubscribeTopicParams) (string, error) { return p.CommandName, nil },
		SubscriberConstructor: func(cqrs.CommandProcessorSubscriberConstructorParams) (message.Subscriber, error) {
			return subscriber, nil
		},
		Marshaler: marshaler,
	})
	if err != nil {
		return err
	}
	return processor.AddHandlers(cqrs.NewCommandHandler("place-order", func(ctx context.Context, command *PlaceOrder) error {
		tx, _ := outbox.TxFrom(ctx) // middleware.Transaction has begun it
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders (item) VALUES ($1)", command.Item); err != nil {
			return err
		}
		fmt.Printf("PlaceOrder %s: stored\n", command.Item)
		return events.Publish(ctx, OrderPlaced{Item: command.Item}) // in the same transaction
	}))
}

func addEventHandlers(router *message.Router, subscriber message.Subscriber, stop func()) error {
	// The queue delivers each message once. A group has one subscription, and calls all of its handlers.
	processor, err := cqrs.NewEventGroupProcessorWithConfig(router, cqrs.EventGroupProcessorConfig{
		GenerateSubscribeTopic: func(cqrs.EventGroupProcessorGenerateSubscribeTopicParams) (string, error) { return "events", nil },
		SubscriberConstructor: func(cqrs.EventGroupProcessorSubscriberConstructorParams) (message.Subscriber, error) {
			return subscriber, nil
		},
		Marshaler: marshaler,
	})
	if err != nil {
		return err
	}
	return processor.AddHandlersGroup("orders",
		cqrs.NewGroupEventHandler(func(_ context.Context, event *OrderPlaced) error {
			fmt.Printf("OrderPlaced %s: reserved\n", event.Item)
			return nil
		}),
		cqrs.NewGroupEventHandler(func(_ context.Context, event *OrderPlaced) error {
			fmt.Printf("OrderPlaced %s: the customer is told\n", event.Item)
			stop() // the end of this program; a service runs on
			return nil
		}))
}
