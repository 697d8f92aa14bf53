package stores_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/stores"
)

// A tenant is the fixture of one of many databases: a schema of its own, on SQLite a file.
type tenant struct {
	*suite.Fixture
	id string
}

// tenants are databases beside the fixture's own, installed.
func (f *fixture) tenants(ids ...string) (tenants []*tenant) {
	f.T.Helper()
	for _, id := range ids {
		x := &tenant{suite.New(f.T, f.DB.Open(f.T), ""), id}
		x.Migrate()
		tenants = append(tenants, x)
	}
	return tenants
}

// database is how a discovery describes the tenant.
func (x *tenant) database() stores.Database {
	return stores.Database{ID: x.id, Dialect: x.Config.Dialect, Driver: x.DB.DriverName, DSN: x.DB.DSN, Schema: x.DB.Schema}
}

// storeOn is the tenant's store over a pool.
func (x *tenant) storeOn(db *sql.DB, logger watermill.LoggerAdapter) *stores.Store {
	x.T.Helper()
	s, err := stores.New(db, x.database(), outbox.Config{}, logger)
	x.NoError(err)
	return s
}

// static is a provider of the tenants, on their own pools.
func (f *fixture) static(tenants ...*tenant) *stores.Static {
	f.T.Helper()
	var list []*stores.Store
	for _, x := range tenants {
		list = append(list, x.storeOn(x.DB.DB, nil))
	}
	return f.staticOf(list...)
}

func (f *fixture) staticOf(list ...*stores.Store) *stores.Static {
	f.T.Helper()
	p, err := stores.NewStatic(list...)
	f.NoError(err)
	return p
}

// A directory is a Discovery whose answer a test changes.
type directory struct {
	mu        sync.Mutex
	databases []stores.Database
	err       error
	asked     int
}

func (d *directory) Databases(context.Context) ([]stores.Database, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked++
	return d.databases, d.err
}

func (d *directory) set(databases ...stores.Database) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.databases, d.err = databases, nil
}

func (d *directory) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = err
}

// dynamic is a provider that is refreshed by the test, and closed when it ends.
func (f *fixture) dynamic(d stores.Discovery, logger watermill.LoggerAdapter, options ...func(*stores.DynamicConfig)) *stores.Dynamic {
	f.T.Helper()
	config := stores.DynamicConfig{RefreshInterval: time.Hour}
	for _, option := range options {
		option(&config)
	}
	p, err := stores.NewDynamic(f.Context(), d, config, logger)
	f.NoError(err)
	f.T.Cleanup(func() {
		if err := p.Close(); err != nil {
			f.T.Errorf("closing the provider: %v", err)
		}
	})
	return p
}

// ids are the identifiers of a provider's stores, in order.
func ids(p stores.Provider) []string {
	list := []string{}
	present, _ := p.Stores()
	for _, s := range present {
		list = append(list, s.ID())
	}
	return list
}

// everywhere is a subscriber over stores that polls quickly and is closed when the test ends.
func (f *fixture) everywhere(p stores.Provider, logger watermill.LoggerAdapter, options ...func(*stores.SubscriberConfig)) *stores.Subscriber {
	f.T.Helper()
	config := stores.SubscriberConfig{
		Subscriber: outbox.SubscriberConfig{
			PollInterval: time.Millisecond, MaxPollInterval: 10 * time.Millisecond, DrainTimeout: time.Second, UnhandledAfter: -1,
			AllowCompeting: true,
			Backoff:        func(int) time.Duration { return time.Millisecond },
		},
		RetryMin: 5 * time.Millisecond, RetryMax: 50 * time.Millisecond,
	}
	for _, option := range options {
		option(&config)
	}
	s, err := stores.NewSubscriber(p, config, logger)
	f.NoError(err)
	f.T.Cleanup(func() {
		if err := s.Close(); err != nil {
			f.T.Errorf("closing the subscriber: %v", err)
		}
	})
	return s
}

// subscribeAll subscribes to a topic of all stores.
func (f *fixture) subscribeAll(s *stores.Subscriber, topic string) <-chan *message.Message {
	f.T.Helper()
	messages, err := s.Subscribe(context.WithoutCancel(f.Context()), topic)
	f.NoError(err)
	return messages
}

// storeOfMessage is the identifier of the store that a message came from.
func (f *fixture) storeOfMessage(msg *message.Message) string {
	f.T.Helper()
	s, ok := stores.FromContext(msg.Context())
	f.True(ok)
	return s.ID()
}

// receiveFrom takes one message and acks it.
func (f *fixture) receiveFrom(messages <-chan *message.Message, store string) {
	f.T.Helper()
	msg := f.Receive(messages)
	f.Equal(store, f.storeOfMessage(msg))
	msg.Ack()
}

// statusOf is how a subscriber stands with a store.
func statusOf(s *stores.Subscriber, id string) (status stores.StoreStatus) {
	for _, status := range s.Status() {
		if status.Store == id {
			return status
		}
	}
	return status
}

// runRouter runs a router until the test ends.
func (f *fixture) runRouter(add func(*message.Router)) {
	f.T.Helper()
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: suite.Patience}, nil)
	f.NoError(err)
	add(router)
	stopped := make(chan error, 1)
	go func() { stopped <- router.Run(context.WithoutCancel(f.Context())) }()
	suite.Take(f.T, router.Running(), "the router")
	f.T.Cleanup(func() {
		if err := errors.Join(router.Close(), <-stopped); err != nil {
			f.T.Errorf("closing the router: %v", err)
		}
	})
}

// allDone waits until every message of the tenant is done, and answers how many there are.
func (x *tenant) allDone() int {
	x.T.Helper()
	x.Eventually(func() bool { return x.Number("SELECT COUNT(*) FROM {all} WHERE {status} <> %d", outbox.Done) == 0 },
		suite.Patience, 5*time.Millisecond, fmt.Sprintf("messages of %s are never done", x.id))
	return x.Count()
}
