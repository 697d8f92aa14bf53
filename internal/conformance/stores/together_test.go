package stores_test

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/forwarder"
	"github.com/incursa/watermill-outbox/inbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/join"
	"github.com/incursa/watermill-outbox/middleware"
	"github.com/incursa/watermill-outbox/stores"
)

// A join in each of two stores: one step is guarded by the store's inbox, the other is received into its queue and worked on
// there, and both come twice. The continuation leaves by the store's forwarder, and then retention empties the outbox.
func TestTrap_EverythingWorksInEveryStore(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		tenants := f.tenants("a", "b")
		inboxes, brokers := map[string]*suite.InboxFixture{}, map[string]brokerOf{}
		for _, x := range tenants {
			inboxes[x.id], brokers[x.id] = suite.NewInboxFixture(suite.New(t, x.DB, ""), ""), make(brokerOf, 10)
		}
		book := suite.NewLogBook()
		p := f.static(tenants...)
		s := f.everywhere(p, book, func(c *stores.SubscriberConfig) { c.Subscriber.Janitor.Done = 300 * time.Millisecond })
		f.runRouter(func(router *message.Router) {
			router.AddMiddleware(middleware.Outcome)
			_, err := stores.AddWaitHandler(router, s, join.Config{}, book)
			f.NoError(err)
			handle := func(topic string, build func(*stores.Store) (message.HandlerFunc, error)) {
				h := stores.PerStore(build)
				router.AddConsumerHandler(topic, topic, s, func(msg *message.Message) error {
					_, err := h(msg)
					return err
				})
			}
			handle("at once", func(s *stores.Store) (message.HandlerFunc, error) {
				in, err := inboxOf(s, book)
				if err != nil {
					return nil, err
				}
				once, err := middleware.Inbox(in, inbox.Identity{Source: "shop"})
				if err != nil {
					return nil, err
				}
				return once(func(msg *message.Message) ([]*message.Message, error) {
					return nil, inboxes[s.ID()].Effect(msg.Context(), 1)
				}), nil
			})
			handle("later", func(s *stores.Store) (message.HandlerFunc, error) {
				in, err := inboxOf(s, book)
				if err != nil {
					return nil, err
				}
				receive, err := in.Receive(inbox.Identity{Source: "shop"})
				return func(msg *message.Message) ([]*message.Message, error) { return nil, receive(msg) }, err
			})
		})
		f.runInEach(p, func(ctx context.Context, s *stores.Store) error {
			fwd, err := forwarder.New(s.DB(), brokers[s.ID()], forwarder.Config{
				Topics: []string{"out"}, Subscriber: s.SubscriberConfig(outbox.SubscriberConfig{MaxPollInterval: 20 * time.Millisecond})}, book)
			if err != nil {
				return err
			}
			return fwd.Run(ctx)
		})
		worked := make(chan string, 10)
		f.runInEach(p, func(ctx context.Context, s *stores.Store) error {
			queue, err := inbox.NewSubscriber(s.DB(), s.SubscriberConfig(outbox.SubscriberConfig{MaxPollInterval: 20 * time.Millisecond}), book)
			if err != nil {
				return err
			}
			messages, err := queue.Subscribe(ctx, "later")
			if err != nil {
				return err
			}
			for msg := range messages {
				worked <- s.ID() + " " + msg.UUID
				msg.Ack()
			}
			return queue.Close()
		})

		for _, x := range tenants {
			c, err := stores.Coordinator(f.storeIn(p, x.id), join.Config{}, book)
			f.NoError(err)
			steps := []outbox.Message{{Topic: "at once", UUID: "1"}, {Topic: "later", UUID: "2"}}
			id := x.Start(c, join.StartParams{ExpectedSteps: len(steps)})
			x.Wait(c, suite.Waits(id, "out", ""))
			_, err = c.Enqueue(f.Context(), nil, id, steps...)
			f.NoError(err)
			x.Enqueue(steps...)
			out, _ := suite.Take(f.T, brokers[x.id], "the continuation")
			f.Equal("completed", string(out.Payload))
			got, _ := suite.Take(f.T, worked, "what was received")
			f.Equal(x.id+" 2", got)
		}
		for _, x := range tenants {
			f.Eventually(func() bool { return x.Count() == 0 }, suite.Patience, 20*time.Millisecond)
			in := inboxes[x.id]
			f.Equal([]int{1, 2, 1}, []int{in.CountEffects(), in.CountEntries(), in.Count()})
			f.Equal(2, int(in.Number("SELECT COUNT(*) FROM {entry} WHERE {seen} = 2")))
			f.Empty(brokers[x.id])
		}
		f.Empty(worked)
		f.Len(book.At("INFO", "Enqueued messages"), 8, "in each store a wait, steps, what is received, and the continuation")
		for _, line := range book.Lines() {
			f.Contains([]any{"a", "b"}, line.Fields["store"], line.String())
		}
	})
}

// inboxOf is the inbox beside a store's outbox.
func inboxOf(s *stores.Store, logger watermill.LoggerAdapter) (*inbox.Inbox, error) {
	d := s.Database()
	return inbox.New(s.DB(), inbox.Config{Dialect: d.Dialect, Schema: d.Schema, Store: d.ID}, logger)
}

// runInEach keeps something going in each store until the test ends.
func (f *fixture) runInEach(p stores.Provider, do func(context.Context, *stores.Store) error) {
	f.T.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(f.Context()))
	ended := make(chan error, 1)
	go func() { ended <- stores.Run(ctx, p, do, nil) }()
	f.T.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			f.T.Errorf("running in each store: %v", err)
		}
	})
}
