package queue_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/testdb"
)

// Handlers that hold connections keep no lease from being renewed: whatever the size of the pool, no message has two live
// handlers. With OUTBOX_TEST_POOLS=full the leases and handlers are those of an ordinary application, which takes minutes.
func TestTrap_RenewalUnderAStarvedPool(t *testing.T) {
	type size struct {
		connections, messages int
		hold, lease           time.Duration
	}
	sizes := []size{{1, 10, 200 * time.Millisecond, 3 * time.Second}, {4, 40, 600 * time.Millisecond, 4 * time.Second}}
	if os.Getenv("OUTBOX_TEST_POOLS") == "full" {
		sizes = []size{
			{1, 100, 500 * time.Millisecond, 10 * time.Second},
			{4, 100, 2 * time.Second, 30 * time.Second},
			{10, 100, 3 * time.Second, 10 * time.Second},
		}
	}
	forEach(t, func(t *testing.T, f *fixture) {
		for _, size := range sizes {
			topic := fmt.Sprintf("pool of %d", size.connections)
			pool := f.DB.Reopen(t)
			pool.SetMaxOpenConns(size.connections)
			f.EnqueueN(topic, size.messages)
			s := f.SubscriberOn(pool.DB, nil, suite.LeaseOf(size.lease))
			h := &starvedHandlers{pool: pool, hold: size.hold, live: map[string]context.Context{}, done: map[string]bool{}}
			messages := f.Subscribe(s, topic)
			var handlers sync.WaitGroup
			handlers.Go(func() {
				for msg := range messages {
					handlers.Go(func() { h.handle(msg) })
				}
			})
			f.Eventually(func() bool { return h.finished() == size.messages }, 20*suite.Patience, 10*time.Millisecond)
			f.NoError(s.Close())
			handlers.Wait()
			t.Logf("%s, %d in flight that hold one for %v, lease %v: two live handlers %d, done again %d, deliveries %d",
				topic, size.messages, size.hold, size.lease, h.doubled, h.repeated, h.deliveries)
			f.Zero(h.doubled, "two live handlers of one message")
			f.Zero(h.repeated, "done again, because what was acked could not be settled")
			f.Len(f.Rows("{status} = 2 AND {topic} = '%s'", topic), size.messages)
		}
	})
}

// starvedHandlers need a connection each, and hold it.
type starvedHandlers struct {
	pool *testdb.DB
	hold time.Duration

	mu                            sync.Mutex
	live                          map[string]context.Context // of the handler that has a message
	done                          map[string]bool
	doubled, repeated, deliveries int
}

func (h *starvedHandlers) handle(msg *message.Message) {
	h.mu.Lock()
	h.deliveries++
	if other := h.live[msg.UUID]; other != nil && other.Err() == nil {
		h.doubled++
	}
	if h.done[msg.UUID] {
		h.repeated++
	}
	h.live[msg.UUID] = msg.Context()
	h.mu.Unlock()
	err := h.work(msg.Context())
	h.mu.Lock()
	if h.live[msg.UUID] == msg.Context() {
		delete(h.live, msg.UUID)
	}
	if err == nil && msg.Context().Err() == nil {
		h.done[msg.UUID] = true
	}
	h.mu.Unlock()
	if err != nil {
		msg.Nack()
		return
	}
	msg.Ack()
}

func (h *starvedHandlers) work(ctx context.Context) error {
	conn, err := h.pool.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	timer := time.NewTimer(h.hold)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (h *starvedHandlers) finished() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.done)
}
