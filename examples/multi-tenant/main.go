// Multi-tenant serves the outboxes of several databases in one process, one for each tenant: an order goes to the database
// of its tenant, and one Watermill router handles them all. Tenants may come while it runs.
//
//	go run ./examples/multi-tenant
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
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"golang.org/x/sync/errgroup"
	_ "modernc.org/sqlite"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/middleware"
	"github.com/incursa/watermill-outbox/stores"
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
	for _, tenant := range []string{"acme", "globex"} {
		if err := signUp(ctx, dir, tenant); err != nil {
			return err
		}
	}

	logger := watermill.NewSlogLogger(nil)
	discovery := stores.DiscoveryFunc(func(context.Context) ([]stores.Database, error) { return databases(dir) })
	provider, err := stores.NewDynamic(ctx, discovery, stores.DynamicConfig{}, logger) // asks again every 5 minutes
	if err != nil {
		return err
	}
	defer provider.Close()
	tenants, err := stores.NewRouter(provider, stores.RouterConfig{}, logger)
	if err != nil {
		return err
	}
	subscriber, err := stores.NewSubscriber(provider, stores.SubscriberConfig{}, logger)
	if err != nil {
		return err
	}
	router, err := message.NewRouter(message.RouterConfig{}, logger)
	if err != nil {
		return err
	}
	var shipped atomic.Int32
	router.AddMiddleware(middleware.Outcome)
	router.AddConsumerHandler("ship", "orders", subscriber, func(msg *message.Message) error {
		store, ok := stores.FromContext(msg.Context()) // has the tenant's database: store.DB()
		if !ok {
			return errors.New("the message does not come from a store")
		}
		fmt.Printf("shipped %s of %s\n", msg.Payload, store.ID())
		if shipped.Add(1) == 3 {
			stop() // the end of this program; a service runs on
		}
		return nil
	})

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return router.Run(ctx) })
	group.Go(func() error { return shop(ctx, dir, provider, tenants) })
	return errors.Join(group.Wait(), subscriber.Close()) // before the provider, which closes the databases
}

// shop places orders. Its last tenant comes while all is running.
func shop(ctx context.Context, dir string, provider *stores.Dynamic, tenants *stores.Router) error {
	err := errors.Join(placeOrder(ctx, tenants, "acme", "socks"), placeOrder(ctx, tenants, "globex", "gloves"))
	if err != nil {
		return err
	}
	fmt.Println("before initech signs up:", placeOrder(ctx, tenants, "initech", "a stapler"))
	if err := errors.Join(signUp(ctx, dir, "initech"), provider.Refresh(ctx)); err != nil {
		return err
	}
	return placeOrder(ctx, tenants, "initech", "a stapler")
}

// placeOrder writes to the database of the tenant alone.
func placeOrder(ctx context.Context, tenants *stores.Router, tenant, item string) error {
	store, err := tenants.Store(tenant)
	if err != nil {
		return err
	}
	publisher, err := tenants.Publisher(tenant)
	if err != nil {
		return err
	}
	return outbox.InTx(ctx, store.DB(), func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders (item) VALUES ($1)", item); err != nil {
			return err
		}
		return publisher.Publish("orders", message.NewMessageWithContext(ctx, watermill.NewUUID(), []byte(item)))
	})
}

// signUp creates the database of a tenant.
func signUp(ctx context.Context, dir, tenant string) error {
	db, err := sql.Open("sqlite", dsn(filepath.Join(dir, tenant+".db")))
	if err != nil {
		return err
	}
	err = outbox.Migrate(ctx, db, outbox.MigrateConfig{Dialect: outbox.SQLite{}})
	if err == nil {
		_, err = db.ExecContext(ctx, "CREATE TABLE orders (item TEXT)")
	}
	return errors.Join(err, db.Close())
}

// databases finds the tenants: a file is one. Yours may stand in a table.
func databases(dir string) (found []stores.Database, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.db"))
	for _, file := range files {
		tenant := strings.TrimSuffix(filepath.Base(file), ".db")
		found = append(found, stores.Database{ID: tenant, Dialect: outbox.SQLite{}, Driver: "sqlite", DSN: dsn(file)})
	}
	return found, err
}

func dsn(file string) string {
	return "file:" + filepath.ToSlash(file) + "?_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)&_txlock=immediate"
}
