package subscriber_test

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/faults"
)

// A concurrency is how many claims run at the same time. If two are to meet, each claim from the second on waits for that.
type concurrency struct {
	meet bool
	met  chan struct{}

	mu                   sync.Mutex
	begun, running, most int
}

func (c *concurrency) hooks() faults.Hooks { return faults.Hooks{Before: c.before, After: c.after} }

func (c *concurrency) before(ctx context.Context, s faults.Statement) error {
	if !isOperation(s, `"give_back":`, "") {
		return nil
	}
	c.mu.Lock()
	c.begun++
	c.running++
	if c.most = max(c.most, c.running); c.running == 2 && c.begun == 3 {
		close(c.met)
	}
	waits := c.meet && c.begun > 1
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

func numbers(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// While there are many messages, a second claim begins before the first has ended, except on SQLite, which has one writer at a
// time, and in a pool that handlers need.
func TestASecondClaimRunsBesideAFullOne(t *testing.T) {
	for name, pool := range map[string]struct{ connections, most int }{"many connections": {0, 2}, "few": {3, 1}} {
		t.Run(name, func(t *testing.T) {
			forEach(t, func(t *testing.T, f *fixture) {
				messages, most := 2500, pool.most
				if isSQLite(f) {
					messages, most = 1500, 1
				}
				c := &concurrency{meet: most == 2, met: make(chan struct{})}
				db := faults.Open(t, f.DB, c.hooks())
				db.SetMaxOpenConns(pool.connections)
				f.EnqueueN("orders", messages)
				s := f.SubscriberOn(db, nil, func(c *outbox.SubscriberConfig) { c.MaxInFlight = 2000 })
				orders := f.Subscribe(s, "orders")
				for range messages {
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
		streams := 3000
		if isSQLite(f) { // one claim at a time: there is less to see, and the race detector makes it slow
			streams = 300
		}
		c := &concurrency{meet: !isSQLite(f), met: make(chan struct{})}
		for n := range each {
			for keys := range slices.Chunk(numbers(streams), 1000) {
				messages := make([]outbox.Message, len(keys))
				for i, key := range keys {
					messages[i] = outbox.Message{Topic: "orders", StreamKey: strconv.Itoa(key), UUID: strconv.Itoa(n)}
				}
				f.Enqueue(messages...)
			}
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
	})
}
