// Retries-and-dead-letters shows what becomes of messages whose handlers fail: one succeeds at its third attempt, one fails
// for good at once, is found among the dead letters and requeued.
//
//	go run ./examples/retries-and-dead-letters
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
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"golang.org/x/sync/errgroup"
	_ "modernc.org/sqlite"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/middleware"
)

func main() {
	slog.SetLogLoggerLevel(slog.LevelError + 1) // Watermill logs each error of a handler; here they are printed
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
	return deliver(ctx, db, stop)
}

func deliver(ctx context.Context, db *sql.DB, stop func()) error {
	logger := watermill.NewSlogLogger(nil)
	publisher, err := outbox.NewPublisher(db, outbox.PublisherConfig{Dialect: outbox.SQLite{}}, logger)
	if err != nil {
		return err
	}
	failed, once := make(chan struct{}), sync.Once{}
	subscriber, err := outbox.NewSubscriber(db, outbox.SubscriberConfig{
		Dialect:     outbox.SQLite{},
		MaxAttempts: 5,
		Backoff:     outbox.ExponentialBackoff(100*time.Millisecond, time.Minute),
		Hooks: outbox.Hooks{OnSettle: func(e outbox.SettleEvent) { // a place for metrics and alerts
			if e.Outcomes[outbox.Fail] > 0 {
				once.Do(func() { close(failed) })
			}
		}},
	}, logger)
	if err != nil {
		return err
	}
	queue, err := outbox.New(db, outbox.Config{Dialect: outbox.SQLite{}}, logger)
	if err != nil {
		return err
	}

	ship := &shipping{done: stop}
	router, err := message.NewRouter(message.RouterConfig{}, logger)
	if err != nil {
		return err
	}
	router.AddMiddleware(middleware.Outcome) // without it, no error is permanent and none is kept
	router.AddConsumerHandler("ship", "orders", subscriber, ship.handle)

	socks := message.NewMessage(watermill.NewUUID(), []byte("socks"))
	unicorn := message.NewMessage(watermill.NewUUID(), []byte("unicorn"))
	if err := publisher.Publish("orders", socks, unicorn); err != nil {
		return err
	}

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return router.Run(ctx) })
	group.Go(func() error {
		select {
		case <-failed:
			return requeue(context.WithoutCancel(ctx), queue, ship) // it finishes, though the program may end meanwhile
		case <-ctx.Done():
			return nil
		}
	})
	return errors.Join(group.Wait(), subscriber.Close()) // before the database
}

// requeue is what an operator does: look at the dead letters, mend the cause, and have them delivered again.
func requeue(ctx context.Context, queue *outbox.Outbox, ship *shipping) error {
	records, err := queue.Failed(ctx, outbox.ListParams{Topic: "orders"})
	if err != nil {
		return err
	}
	for _, r := range records {
		fmt.Printf("dead letter: %s: %s\n", r.Payload, r.LastError)
	}
	ship.unicorns.Store(true)
	n, err := queue.Requeue(ctx, outbox.RequeueParams{Topic: "orders"})
	if err != nil {
		return err
	}
	fmt.Printf("requeued %d\n", n)
	return nil
}

type shipping struct {
	unicorns atomic.Bool // there are some
	shipped  atomic.Int32
	done     func()
}

func (s *shipping) handle(msg *message.Message) error {
	delivery, ok := outbox.DeliveryFrom(msg.Context())
	if !ok {
		return errors.New("the message does not come from an outbox")
	}
	switch item := string(msg.Payload); {
	case item == "socks" && delivery.Attempt() < 3:
		fmt.Printf("socks, attempt %d: the lorry is late\n", delivery.Attempt())
		return errors.New("the lorry is late") // delivered again after the backoff
	case item == "unicorn" && !s.unicorns.Load():
		return outbox.Permanent(errors.New("there are no unicorns")) // no retry will help
	}
	fmt.Printf("%s, attempt %d: shipped\n", msg.Payload, delivery.Attempt())
	if s.shipped.Add(1) == 2 {
		s.done() // the end of this program; a service runs on
	}
	return nil
}
