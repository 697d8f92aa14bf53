package subscriber_test

import (
	"context"
	"strconv"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/faults"
)

// A concurrency is how many claims run at the same time. The first ends by itself; the others wait until two of them run, or until
// met is closed otherwise.
type concurrency struct {
	met  chan struct{}
	meet func() // closes met

	mu                   sync.Mutex
	begun, running, most int
}

func newConcurrency() *concurrency {
	met := make(chan struct{})
	return &concurrency{met: met, meet: sync.OnceFunc(func() { close(met) })}
}

func (c *concurrency) hooks() faults.Hooks { return faults.Hooks{Before: c.before, After: c.after} }

func (c *concurrency) before(ctx context.Context, s faults.Statement) error {
	if !isOperation(s, `"give_back":`, "") {
		return nil
	}
	c.mu.Lock()
	c.begun++
	c.running++
	if c.most = max(c.most, c.running); c.running == 2 {
		c.meet()
	}
	waits := c.begun > 1
	c.mu.Unlock()
	if waits {
		select {
		case <-c.met:
		case <-ctx.Done():
		}
	}
	return nil
}

func (c *concurrency) after(_ context.Context, s faults.Statement, _ error) {
	if isOperation(s, `"give_back":`, "") {
		c.mu.Lock()
		c.running--
		c.mu.Unlock()
	}
}

func isSQLite(f *fixture) bool { return f.Config.Dialect.Name() == "sqlite" }

// While there are many messages, a second claim begins before the first has ended, except on SQLite, which has one writer at a
// time, and in a pool that handlers need.
func TestASecondClaimRunsBesideAFullOne(t *testing.T) {
	for name, connections := range map[string]int{"many connections": 0, "few": 3} {
		t.Run(name, func(t *testing.T) {
			forEach(t, func(t *testing.T, f *fixture) {
				messages, first, most := 2500, 900, 2 // about as many as the first claim may bring
				if connections > 0 || isSQLite(f) {
					most = 1
				}
				c := newConcurrency()
				if isSQLite(f) { // a claim has several statements, and holds up the answers of the first
					messages, first = 1500, -1
					c.meet()
				}
				db := faults.Open(t, f.DB, c.hooks())
				db.SetMaxOpenConns(connections)
				f.EnqueueN("orders", messages)
				s := f.SubscriberOn(db, nil, func(c *outbox.SubscriberConfig) { c.MaxInFlight = 2000 })
				orders := f.Subscribe(s, "orders")
				for i := range messages {
					if i == first && most == 1 {
						f.Eventually(func() bool { return s.InFlight()["orders"] < 200 }, suite.Patience, suite.Tick, "the answers have not made room")
						c.meet()
					}
					f.Receive(orders).Ack()
				}
				f.NoError(s.Close())
				f.Len(f.Rows("{status} = 2"), messages)
				f.Equal(most, c.most)
			})
		})
	}
}

// Two claims at a time take no two messages of a stream: each comes after its predecessor was acked.
func TestStreamsKeepTheirOrderWithTwoClaimsAtATime(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		const each, handlers = 3, 300
		streams, most := 3000, 2
		c := newConcurrency()
		if isSQLite(f) { // one claim at a time: there is less to see, and the race detector makes it slow
			streams, most = 300, 1
			c.meet()
		}
		for n := range each {
			messages := make([]outbox.Message, streams)
			for i := range messages {
				messages[i] = outbox.Message{Topic: "orders", StreamKey: strconv.Itoa(i), UUID: strconv.Itoa(n)}
			}
			f.Enqueue(messages...)
		}
		s := f.SubscriberOn(faults.Open(t, f.DB, c.hooks()), nil, func(c *outbox.SubscriberConfig) { c.MaxInFlight = 2000 })
		orders := f.Subscribe(s, "orders")
		acked := map[string]int{} // by stream
		var handled []*message.Message
		for range streams * each {
			msg := f.Receive(orders)
			handled = append(handled, msg)
			d, _ := outbox.DeliveryFrom(msg.Context())
			n, err := strconv.Atoi(msg.UUID)
			f.NoError(err)
			f.Equal(acked[d.StreamKey()], n, "a message of stream %s", d.StreamKey())
			if len(handled) == handlers {
				for _, msg := range handled {
					d, _ := outbox.DeliveryFrom(msg.Context())
					acked[d.StreamKey()]++
					msg.Ack()
				}
				handled = nil
			}
		}
		f.NoError(s.Close())
		f.Len(f.Rows("{status} = 2"), streams*each)
		f.Equal(most, c.most)
	})
}
