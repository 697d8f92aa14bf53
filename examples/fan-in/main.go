// Fan-in sends three messages side by side, and one more when all three have been handled. The handlers of the three know
// nothing of that: acking a message completes its step of the join.
//
//	go run ./examples/fan-in
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
	_ "modernc.org/sqlite"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/join"
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

	logger := watermill.NewSlogLogger(nil)
	joins, err := join.NewCoordinator(db, join.Config{Dialect: outbox.SQLite{}}, logger)
	if err != nil {
		return err
	}
	subscriber, err := outbox.NewSubscriber(db, outbox.SubscriberConfig{Dialect: outbox.SQLite{}}, logger)
	if err != nil {
		return err
	}
	router, err := message.NewRouter(message.RouterConfig{}, logger)
	if err != nil {
		return err
	}
	router.AddMiddleware(middleware.Outcome)
	joins.AddWaitHandler(router, subscriber) // sends what follows a join
	router.AddConsumerHandler("extract", "extract", subscriber, func(msg *message.Message) error {
		fmt.Printf("extracted %s\n", msg.Payload)
		return nil
	})
	router.AddConsumerHandler("transform", "transform", subscriber, func(msg *message.Message) error {
		fmt.Printf("transform %s: %s of %s extractions have completed\n", msg.Payload,
			msg.Metadata.Get(join.HeaderCompletedSteps), msg.Metadata.Get(join.HeaderExpectedSteps))
		stop() // the end of this program; a service runs on
		return nil
	})
	router.AddConsumerHandler("give-up", "give-up", subscriber, func(msg *message.Message) error {
		fmt.Printf("give up %s: %s extractions have failed for good\n", msg.Payload, msg.Metadata.Get(join.HeaderFailedSteps))
		stop()
		return nil
	})

	if err := extract(ctx, db, joins, "customers", "orders", "products"); err != nil {
		return err
	}
	err = router.Run(ctx)                       // until ctx ends
	return errors.Join(err, subscriber.Close()) // before the database
}

// extract sends a message for each source and says what follows, all in one transaction.
func extract(ctx context.Context, db *sql.DB, joins *join.Coordinator, sources ...string) error {
	return outbox.InTx(ctx, db, func(ctx context.Context, tx *sql.Tx) error {
		id, err := joins.Start(ctx, tx, join.StartParams{ExpectedSteps: len(sources)})
		if err != nil {
			return err
		}
		steps := make([]outbox.Message, len(sources))
		for i, source := range sources {
			steps[i] = outbox.Message{UUID: watermill.NewUUID(), Topic: "extract", Payload: []byte(source)}
		}
		if _, err := joins.Enqueue(ctx, tx, id, steps...); err != nil {
			return err
		}
		_, err = joins.EnqueueWait(ctx, tx, join.Wait{
			Join:                id,
			OnComplete:          join.Continuation{Topic: "transform", Payload: []byte("day 1")},
			OnFail:              &join.Continuation{Topic: "give-up", Payload: []byte("day 1")},
			FailIfAnyStepFailed: true,
		})
		return err
	})
}
