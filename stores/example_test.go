package stores_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sort"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/middleware"
	"github.com/incursa/watermill-outbox/stores"
)

// A database for each tenant: one of them comes while the program runs.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "tenants")
	check(err)
	defer func() { check(os.RemoveAll(dir)) }()
	tenant := func(name string) stores.Database {
		return stores.Database{ID: name, Dialect: outbox.SQLite{}, Driver: "sqlite", DSN: "file:" +
			filepath.ToSlash(filepath.Join(dir, name+".db")) + "?_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)&_txlock=immediate"}
	}

	// Yours would ask the table of tenants.
	tenants := []stores.Database{tenant("acme")}
	discovery := stores.DiscoveryFunc(func(context.Context) ([]stores.Database, error) { return tenants, nil })
	provider, err := stores.NewDynamic(ctx, discovery, stores.DynamicConfig{}, nil)
	check(err)
	defer func() { check(provider.Close()) }()

	tenants = append(tenants, tenant("globex"))
	check(provider.Refresh(ctx)) // it is refreshed every 5 minutes anyway
	_, err = stores.Migrate(ctx, provider, stores.MigrateConfig{OnProgress: func(p stores.Progress) {
		fmt.Printf("migrated %d of %d\n", p.Done, p.Total)
	}})
	check(err)

	// One subscriber for all of them.
	subscriber, err := stores.NewSubscriber(provider, stores.SubscriberConfig{}, nil)
	check(err)
	router := message.NewDefaultRouter(nil)
	router.AddMiddleware(middleware.Outcome)
	handled := make(chan string)
	router.AddConsumerHandler("orders", "orders", subscriber, func(msg *message.Message) error {
		store, _ := stores.FromContext(msg.Context())
		handled <- fmt.Sprintf("%s of %s", msg.Payload, store.ID())
		return nil
	})
	stopped := make(chan error)
	go func() { stopped <- router.Run(ctx) }()

	// Each message goes to the tenant's own database.
	byTenant, err := stores.NewRouter(provider, stores.RouterConfig{}, nil)
	check(err)
	for _, name := range []string{"acme", "globex"} {
		o, err := byTenant.Outbox(name)
		check(err)
		_, err = o.Enqueue(ctx, o.DB(), outbox.Message{Topic: "orders", Payload: []byte("the order")})
		check(err)
	}
	_, err = byTenant.Outbox("initech")
	fmt.Println(err)

	lines := []string{<-handled, <-handled}
	sort.Strings(lines)
	for _, line := range lines {
		fmt.Println(line)
	}
	check(router.Close())
	check(<-stopped)
	check(subscriber.Close()) // it uses no store after this
	// Output:
	// migrated 1 of 2
	// migrated 2 of 2
	// stores: there is no store with this key; check the tenant, or wait until it is discovered: "initech"
	// the order of acme
	// the order of globex
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
