package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/demo/stage"
	"github.com/incursa/watermill-outbox/join"
	"github.com/incursa/watermill-outbox/middleware"
	"github.com/incursa/watermill-outbox/stores"
)

// Much smaller and shorter than in earnest, for the show not to take long.
const (
	refreshInterval = 200 * time.Millisecond // 5 min by default
	claimTimeout    = 300 * time.Millisecond // 10 s
	retryMax        = 500 * time.Millisecond // 30 s
	maxInFlight     = 20                     // 1,000
	shipping        = 5 * time.Millisecond   // what a handler takes
)

// A shop takes the orders of all tenants and ships them.
type shop struct {
	*stage.Screen
	provider   *stores.Dynamic
	router     *stores.Router
	subscriber *stores.Subscriber
	logger     watermill.LoggerAdapter

	longBegins, longMayEnd chan struct{} // the handler of the long order
	welcomed               chan string   // tenants, by the continuation of a join

	mu        sync.Mutex
	published map[string][]string // names of orders, by tenant
	delivered map[string]int
}

func openShop(ctx context.Context, tenants folder, screen *stage.Screen, logger watermill.LoggerAdapter) (s *shop, err error) {
	s = &shop{
		Screen: screen, logger: logger, published: map[string][]string{}, delivered: map[string]int{},
		longBegins: make(chan struct{}, 1), longMayEnd: make(chan struct{}), welcomed: make(chan string, 1),
	}
	s.provider, err = stores.NewDynamic(ctx, tenants, stores.DynamicConfig{RefreshInterval: refreshInterval}, logger)
	if err != nil {
		return nil, err
	}
	s.router, err = stores.NewRouter(s.provider, stores.RouterConfig{}, logger)
	if err != nil {
		return nil, errors.Join(err, s.provider.Close())
	}
	fair, err := stores.NewFair(stores.FairConfig{}) // no tenant has more than half of what is in flight
	if err != nil {
		return nil, errors.Join(err, s.provider.Close())
	}
	s.subscriber, err = stores.NewSubscriber(s.provider, stores.SubscriberConfig{
		Strategy:    fair,
		MaxInFlight: maxInFlight,
		RetryMax:    retryMax,
		Subscriber: outbox.SubscriberConfig{
			ClaimTimeout: claimTimeout,
			Backoff:      outbox.ExponentialBackoff(100*time.Millisecond, time.Second),
			DrainTimeout: 5 * time.Second,
		},
	}, logger)
	if err != nil {
		return nil, errors.Join(err, s.provider.Close())
	}
	return s, nil
}

// open runs an ordinary Watermill router, whose messages come from the outboxes of all tenants, until close is called.
func (s *shop) open(ctx context.Context) (closeShop func() error, err error) {
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 5 * time.Second}, s.logger)
	if err != nil {
		return nil, err
	}
	router.AddMiddleware(middleware.Outcome)
	router.AddConsumerHandler("ship", "orders", s.subscriber, s.ship)
	router.AddConsumerHandler("welcome", "welcome", s.subscriber, s.welcome)
	if _, err := stores.AddWaitHandler(router, s.subscriber, join.Config{}, s.logger); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	ran := make(chan error, 1)
	go func() {
		defer stop()
		ran <- router.Run(ctx)
	}()
	closeShop = func() error {
		stop()
		return errors.Join(<-ran, s.subscriber.Close()) // Close returns when the last acks are written
	}
	select {
	case <-router.Running():
		return closeShop, nil
	case <-ctx.Done():
		return nil, errors.Join(context.Cause(ctx), closeShop())
	}
}

// A batch is orders of a tenant that are placed in one transaction.
type batch struct {
	tenant       string
	orders       int
	delay        time.Duration // until they are due
	long         bool          // whether their handler takes until longMayEnd is closed
	beforeCommit func() error  // defaults to nothing
}

// place writes orders into the outbox of their tenant, in the transaction in which a shop would also write its own rows.
func (s *shop) place(ctx context.Context, b batch) error {
	store, err := s.router.Store(b.tenant)
	if err != nil {
		return err
	}
	publisher, err := s.router.Publisher(b.tenant)
	if err != nil {
		return err
	}
	var names []string
	err = outbox.InTx(ctx, store.DB(), func(ctx context.Context, _ *sql.Tx) error {
		messages := make([]*message.Message, b.orders)
		for i := range messages {
			messages[i] = message.NewMessage(watermill.NewUUID(), []byte(b.tenant))
			messages[i].SetContext(ctx)
			if b.delay > 0 {
				delay.Message(messages[i], delay.For(b.delay))
			}
			if b.long {
				messages[i].Metadata.Set("long", "yes")
			}
			names = append(names, messages[i].UUID)
		}
		if err := publisher.Publish("orders", messages...); err != nil || b.beforeCommit == nil {
			return err
		}
		return b.beforeCommit()
	})
	if err != nil {
		return fmt.Errorf("place orders of %s: %w", b.tenant, err)
	}
	s.note(b.tenant, names...)
	return nil
}

// note remembers what was published.
func (s *shop) note(tenant string, names ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.published[tenant] = append(s.published[tenant], names...)
}

// ship is the handler of orders: one for all tenants. It writes down what it has seen and acks the message in the same
// transaction, in the tenant's database: both happen, or neither does.
func (s *shop) ship(msg *message.Message) error {
	store, err := storeOf(msg)
	if err != nil {
		return err
	}
	delivery, ok := outbox.DeliveryFrom(msg.Context())
	if !ok {
		return errors.New("the message does not come from an outbox")
	}
	select {
	case <-time.After(shipping):
	case <-msg.Context().Done():
		return msg.Context().Err()
	}
	if msg.Metadata.Get("long") != "" {
		s.longBegins <- struct{}{}
		select {
		case <-s.longMayEnd:
		case <-msg.Context().Done():
			return msg.Context().Err()
		}
	}
	err = outbox.InTx(msg.Context(), store.DB(), func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, shippedAddSQL, msg.UUID, store.ID()); err != nil {
			return err
		}
		return delivery.SettleTx(ctx, tx, outbox.Ack)
	})
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.delivered[store.ID()]++
	}
	return err
}

// storeOf is the store of a message, which is that of the tenant that it was meant for.
func storeOf(msg *message.Message) (*stores.Store, error) {
	store, ok := stores.FromContext(msg.Context())
	if !ok || store.ID() != string(msg.Payload) {
		return nil, outbox.Permanent(fmt.Errorf("the message is for %s, and was elsewhere", msg.Payload))
	}
	return store, nil
}

// waiting is how many orders of tenants are on their way.
func (s *shop) waiting(tenants ...string) (orders int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, tenant := range tenants {
		orders += len(s.published[tenant]) - s.delivered[tenant]
	}
	return orders
}
