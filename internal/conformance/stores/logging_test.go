package stores_test

import (
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/join"
	"github.com/incursa/watermill-outbox/stores"
)

// work goes once through what is logged: publishing, claiming, handling, failing, a reaped lease, a join that ends.
func (f *fixture) work(x *tenant, p stores.Provider, r *stores.Router, book *suite.LogBook, hooks outbox.Hooks) {
	f.T.Helper()
	c, err := stores.Coordinator(f.storeIn(p, x.id), join.Config{Hooks: hooks}, book)
	f.NoError(err)
	id, err := c.Start(f.Context(), nil, join.StartParams{ExpectedSteps: 1})
	f.NoError(err)
	_, err = c.Enqueue(f.Context(), nil, id, outbox.Message{Topic: "t", UUID: x.id})
	f.NoError(err)
	pub, err := r.Publisher(x.id)
	f.NoError(err)
	f.NoError(pub.Publish("t", message.NewMessage(x.id, nil)))
	x.EnqueueN("t", 1)
	x.ClaimWith(outbox.ClaimParams{Topics: suite.Quotas("t"), Limit: 1})
	x.ExpireLeases()
	n, err := f.storeIn(p, x.id).Outbox().ReapExpired(f.Context())
	f.NoError(err)
	f.Equal(1, n)
}

func (f *fixture) loggedInStores(check func(book *suite.LogBook, events *storeEvents)) {
	f.T.Helper()
	tenants := f.tenants("a", "b")
	book, events := suite.NewLogBook(), &storeEvents{}
	var list []*stores.Store
	for _, x := range tenants {
		s, err := stores.New(x.DB.DB, x.database(), outbox.Config{Hooks: events.hooks()}, book)
		f.NoError(err)
		list = append(list, s)
	}
	p := f.staticOf(list...)
	r, err := stores.NewRouter(p, stores.RouterConfig{}, book)
	f.NoError(err)
	for _, x := range tenants {
		f.work(x, p, r, book, events.hooks())
	}
	s := f.everywhere(p, book, func(c *stores.SubscriberConfig) {
		c.Subscriber.Hooks, c.Subscriber.UnhandledAfter = events.hooks(), 20*time.Millisecond
	})
	messages := f.subscribeAll(s, "t")
	for _, x := range tenants {
		x.EnqueueN("nobody's", 1)
	}
	for i := range 6 {
		msg := f.Receive(messages)
		if i < 2 {
			msg.Nack()
			f.Receive(messages).Ack()
			continue
		}
		msg.Ack()
	}
	f.Await(book, "ERROR", "without a handler")
	f.Eventually(func() bool { return events.complete("a") && events.complete("b") }, suite.Patience, suite.Tick)
	f.NoError(s.Close())
	check(book, events)
}

// storeEvents are the kinds of events that hooks have told of each store.
type storeEvents struct{ seen sync.Map }

func (e *storeEvents) add(kind, store string) { e.seen.Store(kind+" "+store, true) }

func (e *storeEvents) complete(store string) bool {
	for _, kind := range []string{"publish", "claim", "settle", "reap", "join", "backlog"} {
		if _, ok := e.seen.Load(kind + " " + store); !ok {
			return false
		}
	}
	return true
}

func (e *storeEvents) hooks() outbox.Hooks {
	return outbox.Hooks{
		OnPublish: func(p outbox.PublishEvent) { e.add("publish", p.Store) },
		OnClaim:   func(c outbox.ClaimEvent) { e.add("claim", c.Store) },
		OnSettle:  func(s outbox.SettleEvent) { e.add("settle", s.Store) },
		OnReap:    func(r outbox.ReapEvent) { e.add("reap", r.Store) },
		OnJoinEnd: func(j outbox.JoinEvent) { e.add("join", j.Store) },
		OnBacklog: func(topics []outbox.TopicBacklog) {
			for _, t := range topics {
				e.add("backlog", t.Store)
			}
		},
	}
}

func TestOBX065_WhatIsLoggedOfAMessageNamesItsStore(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.loggedInStores(func(book *suite.LogBook, _ *storeEvents) {
			for level, text := range map[string]string{"INFO": "Handling message", "DEBUG": "Claimed messages", "ERROR": "Handler did not succeed"} {
				of := map[any]bool{}
				for _, line := range book.At(level, text) {
					of[line.Fields["store"]] = true
				}
				f.NotContains(of, nil, text)
				f.NotEmpty(of, text)
			}
			of := map[any]bool{}
			for _, line := range book.At("INFO", "Handling message") {
				of[line.Fields["store"]] = true
			}
			f.Equal(map[any]bool{"a": true, "b": true}, of)
		})
	})
}

func TestOBX101_EveryLineNamesItsStore(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.loggedInStores(func(book *suite.LogBook, events *storeEvents) {
			for _, line := range book.Lines() {
				f.Contains([]any{"a", "b"}, line.Fields["store"], line.String())
			}
			for _, text := range []string{"Enqueued messages", "Gave back messages", "Join ended", "Started a join"} {
				f.NotEmpty(book.At("INFO", text), text)
			}
			events.seen.Range(func(key, _ any) bool {
				f.NotRegexp(" $", key, "an event without a store")
				return true
			})
		})
	})
}
