package stores_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/forwarder"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/join"
	"github.com/incursa/watermill-outbox/middleware"
	"github.com/incursa/watermill-outbox/stores"
)

// Stores come and go while messages are published to all of them: none is lost, and no store is made more than once for each
// time that it comes.
func TestStoresComeAndGoUnderLoad(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		const each = 60
		tenants := f.tenants("a", "b", "c")
		all := []stores.Database{tenants[0].database(), tenants[1].database(), tenants[2].database()}
		d := &directory{}
		d.set(all...)
		var opened atomic.Int32
		p := f.dynamic(d, nil, func(c *stores.DynamicConfig) {
			c.Open = func(d stores.Database) (*sql.DB, error) {
				opened.Add(1)
				db, err := sql.Open(d.Driver, d.DSN)
				if err == nil {
					db.SetMaxOpenConns(4)
				}
				return db, err
			}
		})
		s := f.everywhere(p, nil, func(c *stores.SubscriberConfig) { c.Subscriber.DrainTimeout = suite.Patience })
		messages := f.subscribeAll(s, "t")
		handled := make(chan struct{})
		wrong := atomic.Int32{}
		go func() {
			defer close(handled)
			for msg := range messages {
				if store, ok := stores.FromContext(msg.Context()); !ok || string(msg.Payload) != store.ID() {
					wrong.Add(1)
				}
				msg.Ack()
			}
		}()
		var publishing sync.WaitGroup
		for _, x := range tenants {
			publishing.Go(func() {
				for range each / 2 {
					m := outbox.Message{Topic: "t", Payload: []byte(x.id)}
					if _, err := x.Outbox.Enqueue(f.Context(), x.DB.DB, m, m); err != nil {
						t.Error(err)
					}
				}
			})
		}
		for i := range 9 {
			d.set(append(append([]stores.Database(nil), all[:i%3]...), all[i%3+1:]...)...)
			f.NoError(p.Refresh(f.Context()))
			_, changed := p.Stores()
			f.NotNil(changed)
			d.set(all...)
			f.NoError(p.Refresh(f.Context()))
			f.NoError(p.Refresh(f.Context()))
		}
		publishing.Wait()
		for _, x := range tenants {
			f.Equal(each, x.allDone())
			f.Zero(x.Number("SELECT COALESCE(MAX({retry_count}), 0) FROM {all}"), "what was given back spent no attempt")
		}
		f.EqualValues(3+9, opened.Load())
		f.NoError(s.Close())
		<-handled
		f.Zero(wrong.Load(), "messages with the store of another")
	})
}

// What a store that goes away has not handed out is released at once, and what is handled may finish.
func TestAStoreThatGoesReleasesItsMessages(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		x := f.tenants("a")[0]
		x.EnqueueN("t", 5)
		d := &directory{}
		d.set(x.database())
		p := f.dynamic(d, nil)
		s := f.everywhere(p, nil, func(c *stores.SubscriberConfig) { c.Subscriber.DrainTimeout = suite.Patience })
		messages := f.subscribeAll(s, "t")
		msg := f.Receive(messages)
		f.Eventually(func() bool { return x.Number("SELECT COUNT(*) FROM {all} WHERE {status} = 1") == 5 }, suite.Patience, suite.Tick)
		d.set()
		f.NoError(p.Refresh(f.Context()))
		f.Eventually(func() bool { return x.Number("SELECT COUNT(*) FROM {all} WHERE {status} = 0") == 4 }, suite.Patience, suite.Tick)
		msg.Ack()
		f.Eventually(func() bool { return x.Number("SELECT COUNT(*) FROM {all} WHERE {status} = 2") == 1 }, suite.Patience, suite.Tick)
		f.Zero(x.Number("SELECT MAX({retry_count}) FROM {all}"))
	})
}

// A Watermill router over all stores, with a handler that publishes where its message came from.
func TestARouterHandlesTheMessagesOfAllStores(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		tenants := f.tenants("a", "b", "c")
		p := f.static(tenants...)
		s := f.everywhere(p, nil)
		var built atomic.Int32
		answered := make(chan string, 30)
		f.runRouter(func(router *message.Router) {
			router.AddMiddleware(middleware.Outcome)
			answer := stores.PerStore(func(s *stores.Store) (message.HandlerFunc, error) {
				if built.Add(1) == 1 {
					return nil, errors.New("not yet")
				}
				pub, err := s.Publisher(outbox.PublisherConfig{RequireTx: true}, nil)
				if err != nil {
					return nil, err
				}
				return func(msg *message.Message) ([]*message.Message, error) {
					delivery, _ := outbox.DeliveryFrom(msg.Context())
					return nil, outbox.InTx(msg.Context(), s.DB(), func(ctx context.Context, tx *sql.Tx) error {
						next := message.NewMessage(msg.UUID, []byte(s.ID()))
						next.SetContext(ctx)
						if err := pub.Publish("answers", next); err != nil {
							return err
						}
						return delivery.SettleTx(ctx, tx, outbox.Ack)
					})
				}, nil
			})
			router.AddConsumerHandler("questions", "questions", s, func(msg *message.Message) error {
				_, err := answer(msg)
				return err
			})
			router.AddConsumerHandler("answers", "answers", s, func(msg *message.Message) error {
				answered <- string(msg.Payload)
				return nil
			})
		})
		for _, x := range tenants {
			x.EnqueueN("questions", 10)
		}
		count := map[string]int{}
		for range 30 {
			id, _ := suite.Take(f.T, answered, "an answer")
			count[id]++
		}
		f.Equal(map[string]int{"a": 10, "b": 10, "c": 10}, count)
		f.EqualValues(4, built.Load(), "once for each store, and once in vain")
		for _, x := range tenants {
			f.Equal(20, x.allDone())
			f.Zero(x.Number("SELECT MAX({retry_count}) FROM {all}"), "what could not be built spent no attempt")
		}
	})
}

// A handler of stores fails a message of elsewhere for good.
func TestPerStoreRefusesMessagesOfElsewhere(t *testing.T) {
	t.Parallel()
	handler := stores.PerStore(func(*stores.Store) (message.HandlerFunc, error) { panic("never") })
	_, err := handler(message.NewMessage("1", nil))
	if !outbox.IsPermanent(err) {
		t.Errorf("%v is not permanent", err)
	}
}

// Joins and waits work in every store, also in one that is discovered while the subscriber runs.
func TestTrap_JoinsWorkInEveryStore(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		tenants := f.tenants("early", "late")
		d := &directory{}
		d.set(tenants[0].database())
		p := f.dynamic(d, nil)
		s := f.everywhere(p, nil)
		continued := make(chan string, 10)
		f.runRouter(func(router *message.Router) {
			router.AddMiddleware(middleware.Outcome)
			_, err := stores.AddWaitHandler(router, s, join.Config{}, nil)
			f.NoError(err)
			router.AddConsumerHandler("steps", "steps", s, func(*message.Message) error { return nil })
			router.AddConsumerHandler("next", "next", s, func(msg *message.Message) error {
				store, _ := stores.FromContext(msg.Context())
				continued <- store.ID() + " " + msg.Metadata[join.HeaderCompletedSteps]
				return nil
			})
		})
		for _, x := range tenants {
			if x.id == "late" {
				d.set(tenants[0].database(), tenants[1].database())
				f.NoError(p.Refresh(f.Context()))
			}
			c, err := stores.Coordinator(f.storeIn(p, x.id), join.Config{}, nil)
			f.NoError(err)
			id := x.Start(c, join.StartParams{ExpectedSteps: 3})
			wait := x.Wait(c, suite.Waits(id, "next", ""))
			x.AddSteps(c, id, "steps", 3)
			next, _ := suite.Take(f.T, continued, "the continuation")
			f.Equal(x.id+" 3", next)
			x.Becomes(wait, outbox.Done)
			f.Equal(5, x.allDone())
		}
	})
}

// A wake-up of one store leaves the others asleep; those without a store hear all, and wake all.
func TestWakeupsStayInTheirStore(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		topic := "topic of " + f.DB.Schema + watermill.NewUUID()
		var mu sync.Mutex
		var heard []string
		listen := func(store string) {
			stop := outbox.OnWake(store, func(topics []string) {
				mu.Lock()
				defer mu.Unlock()
				for _, t := range topics {
					if t == topic {
						heard = append(heard, store)
					}
				}
			})
			t.Cleanup(stop)
		}
		listen("a")
		listen("b")
		listen("")
		took := func() []string {
			mu.Lock()
			defer mu.Unlock()
			defer func() { heard = nil }()
			return heard
		}
		named := func(store string) *outbox.Outbox {
			return f.NewOutbox(f.DB.DB, func(c *outbox.Config) { c.Store = store })
		}
		a, b := named("a"), named("b")
		m := outbox.Message{Topic: topic}
		enqueue := func(x outbox.Executor, outboxes ...*outbox.Outbox) {
			for _, o := range outboxes {
				_, err := o.Enqueue(f.Context(), x, m)
				f.NoError(err)
			}
		}
		enqueue(f.DB.DB, a)
		f.ElementsMatch([]string{"a", ""}, took())
		enqueue(f.DB.DB, f.Outbox)
		f.ElementsMatch([]string{"a", "b", ""}, took())
		outbox.Wake(topic)
		f.ElementsMatch([]string{"a", "b", ""}, took())

		inTx := func(outboxes ...*outbox.Outbox) {
			f.NoError(outbox.InTx(f.Context(), f.DB.DB, func(ctx context.Context, tx *sql.Tx) error {
				for _, o := range outboxes {
					_, err := o.Enqueue(ctx, tx, m, m)
					f.NoError(err)
				}
				f.Empty(took(), "before the commit")
				return nil
			}))
		}
		inTx(b)
		f.ElementsMatch([]string{"b", ""}, took())
		inTx(a, b)
		f.ElementsMatch([]string{"a", "", "b", ""}, took())

		p := f.Publisher(f.DB.DB, func(c *outbox.PublisherConfig) { c.Store = "b" })
		f.NoError(p.Publish(topic, message.NewMessage("1", nil)))
		f.ElementsMatch([]string{"b", ""}, took())

		// A Subscriber that hardly polls is woken by its own store.
		s := f.Subscriber(func(c *outbox.SubscriberConfig) {
			c.Store, c.PollInterval, c.MaxPollInterval = "a", time.Hour, time.Hour
		})
		messages := f.Subscribe(s, topic)
		for range f.Count() {
			f.Receive(messages).Ack()
		}
		enqueue(f.DB.DB, a)
		f.Receive(messages).Ack()
	})
}

// A forwarder runs in each store for as long as that is there, and again after it has failed.
func TestRunKeepsAForwarderInEachStore(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		tenants := f.tenants("a", "b")
		d := &directory{}
		d.set(tenants[0].database())
		book := suite.NewLogBook()
		p := f.dynamic(d, nil)
		broker := make(brokerOf, 100)
		ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
		ended := make(chan error, 1)
		var failed atomic.Bool
		go func() {
			ended <- stores.Run(ctx, p, func(ctx context.Context, s *stores.Store) error {
				if failed.CompareAndSwap(false, true) {
					return errors.New("the first time fails")
				}
				fwd, err := forwarder.New(s.DB(), broker, forwarder.Config{
					Topics: []string{"t"}, Subscriber: s.SubscriberConfig(outbox.SubscriberConfig{MaxPollInterval: 20 * time.Millisecond})}, book)
				if err != nil {
					return err
				}
				return fwd.Run(ctx)
			}, book)
		}()
		tenants[0].EnqueueN("t", 3)
		for range 3 {
			suite.Take(f.T, broker, "a forwarded message")
		}
		f.Equal("a", f.Await(book, "ERROR", "run again").Fields["store"])
		tenants[1].EnqueueN("t", 3)
		d.set(tenants[1].database())
		gone := f.storeIn(p, "a")
		f.NoError(p.Refresh(f.Context()))
		for range 3 {
			suite.Take(f.T, broker, "a forwarded message")
		}
		f.Eventually(func() bool { return gone.DB().PingContext(f.Context()) != nil }, suite.Patience, suite.Tick)
		for _, x := range tenants {
			f.Equal(3, x.allDone())
		}
		stop()
		err, _ := suite.Take(f.T, ended, "the end of Run")
		f.NoError(err)
	})
}

// brokerOf is a publisher that passes everything to a test.
type brokerOf chan *message.Message

func (b brokerOf) Publish(_ string, messages ...*message.Message) error {
	for _, msg := range messages {
		b <- msg
	}
	return nil
}

func (b brokerOf) Close() error { return nil }

// Configure sets what may differ, and leaves what is the store's own.
func TestConfigureIsPerStore(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		tenants := f.tenants("keeps", "deletes")
		s := f.everywhere(f.static(tenants...), nil, func(c *stores.SubscriberConfig) {
			c.Configure = func(s *stores.Store, c *outbox.SubscriberConfig) {
				c.DeleteOnAck = s.ID() == "deletes"
				c.Store, c.Schema, c.ClaimTimeout = "nonsense", "nonsense", -1 // which are the store's own
			}
		})
		messages := f.subscribeAll(s, "t")
		for _, x := range tenants {
			x.EnqueueN("t", 3)
		}
		for range 6 {
			f.Receive(messages).Ack()
		}
		f.Equal(3, tenants[0].allDone())
		f.Eventually(func() bool { return tenants[1].Count() == 0 }, suite.Patience, suite.Tick)
	})
}

// The Subscriber purges each store by that store's retention.
func TestRetentionIsPerStore(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		tenants := f.tenants("keeps", "purges")
		var left []string
		for _, x := range tenants {
			left = x.Retained()
		}
		s := f.everywhere(f.static(tenants...), nil, func(c *stores.SubscriberConfig) {
			c.Configure = func(s *stores.Store, c *outbox.SubscriberConfig) {
				if s.ID() == "purges" {
					c.Janitor = outbox.JanitorConfig{Done: 300 * time.Millisecond}
				}
			}
		})
		f.subscribeAll(s, "t")
		f.Eventually(func() bool { return tenants[1].Count() == len(left) }, suite.Patience, 20*time.Millisecond)
		f.ElementsMatch(left, tenants[1].UUIDs())
		f.Equal(len(left)+1, tenants[0].Count())
	})
}

func TestTopicsNameTheirStore(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.EnqueueN("t", 1)
		topics, err := f.NewOutbox(f.DB.DB, func(c *outbox.Config) { c.Store = "a" }).Topics(f.Context())
		f.NoError(err)
		f.Len(topics, 1)
		f.Equal("a", topics[0].Store)
	})
}
