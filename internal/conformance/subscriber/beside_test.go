package subscriber_test

import (
	"context"
	"sync"
	"testing"

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

// While there are many messages, a second claim begins before the first has ended, except on SQLite, which has one writer at a
// time, and in a pool that handlers need.
func TestASecondClaimRunsBesideAFullOne(t *testing.T) {
	for name, pool := range map[string]struct{ connections, most int }{"many connections": {0, 2}, "few": {3, 1}} {
		t.Run(name, func(t *testing.T) {
			forEach(t, func(t *testing.T, f *fixture) {
				const messages = 4000
				most := pool.most
				if f.Config.Dialect.Name() == "sqlite" {
					most = 1
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
