package publish

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/faults"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
)

const topic = "orders"

var errBoom = errors.New("boom")

// A fixture is an outbox, and what was told of its publishers' calls.
type fixture struct {
	*testoutbox.Outbox

	mu     sync.Mutex
	events []outbox.PublishEvent
}

func forEach(t *testing.T, test func(t *testing.T, f *fixture)) {
	t.Helper()
	testoutbox.ForEach(t, func(t *testing.T, o *testoutbox.Outbox) { test(t, &fixture{Outbox: o}) })
}

// publisher is closed with the test, without an error.
func (f *fixture) publisher(x outbox.Executor, options ...func(*outbox.PublisherConfig)) *outbox.Publisher {
	f.T.Helper()
	p, err := outbox.NewPublisher(x, f.config(options...), nil)
	f.NoError(err)
	f.T.Cleanup(func() {
		if err := p.Close(); err != nil {
			f.T.Errorf("closing the publisher: %v", err)
		}
	})
	return p
}

func (f *fixture) config(options ...func(*outbox.PublisherConfig)) outbox.PublisherConfig {
	config := outbox.PublisherConfig{Dialect: testoutbox.Dialect(f.DB.Name), Schema: f.DB.Schema, Hooks: outbox.Hooks{OnPublish: f.onPublish}}
	for _, option := range options {
		option(&config)
	}
	return config
}

func (f *fixture) onPublish(e outbox.PublishEvent) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events = append(f.events, e)
}

// calls returns, of each call in order, with how many it was written.
func (f *fixture) calls() (calls []int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.events {
		calls = append(calls, e.Calls)
	}
	return calls
}

// commits is in how many transactions all calls were written.
func (f *fixture) commits() int {
	sum := 0.0
	for _, calls := range f.calls() {
		sum += 1 / float64(calls)
	}
	return int(math.Round(sum))
}

func with(strategy outbox.FlushStrategy) func(*outbox.PublisherConfig) {
	return func(c *outbox.PublisherConfig) { c.Flush = strategy }
}

// byUUID has messages published under the ids that their UUIDs are.
func byUUID(c *outbox.PublisherConfig) {
	c.MessageID = func(_ string, msg *message.Message) outbox.MessageID {
		var id outbox.MessageID
		_ = id.UnmarshalText([]byte(msg.UUID)) // any other has a new one
		return id
	}
}

func msg(ctx context.Context, uuid string) *message.Message {
	return message.NewMessageWithContext(ctx, uuid, []byte("payload "+uuid))
}

// uuids are those in the table, in the order of publishing.
func (f *fixture) uuids() (uuids []string) {
	for _, r := range f.Rows() {
		uuids = append(uuids, r.UUID)
	}
	return uuids
}

func (f *fixture) inTx(do func(ctx context.Context, tx *sql.Tx) error) error {
	return outbox.InTx(f.T.Context(), f.DB.DB, do)
}

// visible is how many messages a transaction sees.
func (f *fixture) visible(tx *sql.Tx) (n int) {
	f.NoError(tx.QueryRowContext(f.T.Context(), f.SQL("SELECT COUNT(*) FROM {outbox}")).Scan(&n))
	return n
}

func numbers(from, to int) (list []string) {
	for i := from; i < to; i++ {
		list = append(list, fmt.Sprint(i))
	}
	return list
}

// inserts reports whether a statement enqueues.
func inserts(s faults.Statement) bool {
	text := strings.ToLower(s.Text)
	return strings.Contains(text, "insert into") || strings.Contains(text, "_enqueue")
}
