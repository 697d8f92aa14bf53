package cost_test

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/admin"
	"github.com/incursa/watermill-outbox/eventstore"
	"github.com/incursa/watermill-outbox/fanout"
	"github.com/incursa/watermill-outbox/inbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/join"
)

// explainsItself: the database tells how it ran each statement, those inside of functions included.
var explainsItself = suite.NewCapability("plans of what has run", func(ctx context.Context, db *testdb.DB) (string, error) {
	if db.Name != testdb.Postgres {
		return "only auto_explain tells of statements inside of functions", nil
	}
	_, err := db.ExecContext(ctx, "LOAD 'auto_explain'")
	return "", err
})

// A call on many messages does not compare each of them with each.
func TestTrap_PairsOfMessages(t *testing.T) {
	forEachEmpty(t, func(t *testing.T, f *fixture) {
		f.Needs(explainsItself)
		f.WithInbox = true
		f.Migrate()
		for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
			var plans plans
			pool := plans.open(f, mode)
			c := &largeCalls{fixture: f, pool: pool, outbox: f.NewOutbox(pool)}
			for _, call := range slices.Concat(c.ofSteps(), c.ofMessages(), c.ofStreams(), c.ofTheLog(), c.ofAnInbox(), c.ofAdmin(), c.ofTheEnd()) {
				plans.take()
				call.run()
				worst := slices.MaxFunc(plans.take(), func(a, b node) int { return cmp.Compare(a.rows(), b.rows()) })
				f.Less(worst.rows(), 20.0*large, "%s, %s: rows of one node of a plan: %+v", call.name, mode, worst)
			}
		}
	})
}

const large = 500

type largeCall struct {
	name string
	run  func()
}

// largeCalls work on many messages each, one after the other.
type largeCalls struct {
	*fixture
	pool   *sql.DB
	outbox *outbox.Outbox
	joins  *join.Coordinator
	open   join.ID            // a join that ends last
	ids    []outbox.MessageID // what was enqueued last
	held   []outbox.Claimed   // what was claimed last
}

func (c *largeCalls) ofSteps() []largeCall {
	c.joins = c.Coordinator(c.pool)
	c.open = c.Start(c.joins, join.StartParams{ExpectedSteps: 1 << 20})
	return []largeCall{
		{"enqueue steps", c.enqueue("steps", 0)},
		{"attach", func() { c.NoError(c.joins.Attach(c.Context(), c.pool, c.open, c.ids...)) }},
		{"claim steps", c.claim("steps")},
		{"renew", func() {
			var receipts []outbox.Receipt
			for _, held := range c.held {
				receipts = append(receipts, held.Receipt)
			}
			refused, err := c.outbox.Renew(c.Context(), time.Minute, receipts...)
			c.NoError(err)
			c.Empty(refused)
		}},
		{"ack steps", c.settle(outbox.Ack)},
		{"claim more steps", c.claim("steps")},
		{"fail steps", c.settle(outbox.Fail)},
		{"purge what a join needs", c.purge(outbox.PurgeParams{}, 0)},
		{"purge failed messages that a join needs", c.purge(outbox.PurgeParams{Failed: true}, 0)},
	}
}

func (c *largeCalls) ofMessages() []largeCall {
	return []largeCall{
		{"enqueue", c.enqueue("orders", 0)},
		{"get", func() {
			records, err := c.outbox.Get(c.Context(), c.ids...)
			c.NoError(err)
			c.Len(records, len(c.ids))
		}},
		{"claim", c.claim("orders")},
		{"reap", c.reap},
		{"claim what was reaped", c.claim("orders")},
		{"ack", c.settle(outbox.Ack)},
		{"claim the rest", c.claim("orders")},
		{"fail", c.settle(outbox.Fail)},
		{"purge beside a join", c.purge(outbox.PurgeParams{}, large)},
		{"purge failed messages beside a join", c.purge(outbox.PurgeParams{Failed: true}, large)},
	}
}

func (c *largeCalls) ofStreams() []largeCall {
	return []largeCall{
		{"enqueue to streams", c.enqueue("ordered", large)},
		{"claim new streams", c.claim("ordered")},
		{"retry in streams", c.settle(outbox.Retry)},
		{"claim streams", c.claim("ordered")},
		{"fail in streams", c.settle(outbox.Fail)},
		{"requeue", func() {
			requeued, err := c.outbox.Requeue(c.Context(), outbox.RequeueParams{Topic: "ordered"})
			c.NoError(err)
			c.Equal(large, requeued)
		}},
		{"claim requeued streams", c.claim("ordered")},
		{"ack in streams", c.settle(outbox.Ack)},
		{"claim what follows", c.claim("ordered")},
		{"reap streams", c.reap},
		{"claim streams that were reaped", c.claim("ordered")},
		{"ack the last of streams", c.settle(outbox.Ack)},
		{"purge of streams", c.purge(outbox.PurgeParams{}, 2*large)},
	}
}

func (c *largeCalls) ofTheLog() []largeCall {
	return []largeCall{
		{"append to streams of events", func() {
			var streams []eventstore.StreamEvents
			for i := range large {
				streams = append(streams, eventstore.StreamEvents{Stream: suite.StreamKey(i), Expected: eventstore.Any, Events: someEvents(1)})
			}
			_, err := c.eventStore(c.pool).AppendAll(c.Context(), nil, streams...)
			c.NoError(err)
		}},
		{"log", func() {
			logs := c.NewOutbox(c.pool, func(c *outbox.Config) { c.Log = outbox.LogOnly })
			_, err := logs.Enqueue(c.Context(), c.pool, someMessages(large)...)
			c.NoError(err)
		}},
		{"stamp", func() { c.StampOn(c.pool) }},
		{"fan out", func() {
			stop := c.DispatchOn(c.pool, nil, []fanout.Policy{suite.ToTopics("copies", "copies")})
			c.HasPassed("copies", int(c.LastPosition()))
			stop()
		}},
		{"purge the log", func() {
			purged, err := c.outbox.Purge(c.Context(), outbox.PurgeParams{Log: true})
			c.NoError(err)
			c.Equal(large, purged)
		}},
	}
}

func (c *largeCalls) ofAnInbox() []largeCall {
	in, err := inbox.New(c.pool, inbox.Config{Dialect: c.Config.Dialect, Schema: c.Config.Schema, Table: c.Config.Dialect.Traits().Table}, nil)
	c.NoError(err)
	var received []inbox.Received
	for i := range 2 * large {
		received = append(received, suite.ReceivedOf(fmt.Sprint(i), "received"))
	}
	enqueue := func() {
		_, err := in.Enqueue(c.Context(), c.pool, received...)
		c.NoError(err)
	}
	topic := received[0].Key.Handler
	return []largeCall{
		{"enqueue what was received", enqueue},
		{"enqueue it again", enqueue},
		{"claim what was received", c.claim(topic)},
		{"ack what was received", c.settle(outbox.Ack)},
		{"claim the rest of what was received", c.claim(topic)},
		{"ack the rest of what was received", c.settle(outbox.Ack)},
		{"purge the inbox", func() {
			purged, err := in.Purge(c.Context(), outbox.PurgeParams{})
			c.NoError(err)
			c.Equal(2*large, purged)
		}},
	}
}

func (c *largeCalls) ofAdmin() []largeCall {
	a, err := admin.New(c.outbox)
	c.NoError(err)
	return []largeCall{
		{"enqueue what fails", c.enqueue("dead", 0)},
		{"claim what fails", c.claim("dead")},
		{"fail", c.settle(outbox.Fail)},
		{"search dead letters", func() {
			found, err := a.Failed(c.Context(), admin.ListParams{Filter: admin.Filter{Topic: "dead"}, Limit: large})
			c.NoError(err)
			c.Len(found.Messages, large)
		}},
		{"count errors", func() {
			counts, err := a.Errors(c.Context(), admin.ErrorParams{})
			c.NoError(err)
			c.NotEmpty(counts.Groups)
		}},
		{"requeue by topic", func() {
			result, err := a.Requeue(c.Context(), admin.ActParams{Filter: admin.Filter{Topic: "dead"}})
			c.NoError(err)
			c.Equal(large, result.Done)
		}},
		{"delay", func() {
			_, err := a.Delay(c.Context(), admin.DelayParams{ActParams: admin.ActParams{IDs: c.ids}, Delay: time.Hour})
			c.NoError(err)
		}},
		{"cancel", func() {
			result, err := a.Cancel(c.Context(), admin.ActParams{IDs: c.ids})
			c.NoError(err)
			c.Equal(2*large, result.Done)
		}},
		{"purge what was cancelled", c.purge(outbox.PurgeParams{Failed: true}, 2*large)},
	}
}

func (c *largeCalls) ofTheEnd() []largeCall {
	return []largeCall{
		{"cancel a join", func() { c.NoError(c.joins.Cancel(c.Context(), c.pool, c.open)) }},
		{"purge joins", func() {
			purged, err := c.joins.Purge(c.Context(), 0)
			c.NoError(err)
			c.Equal(1, purged)
		}},
		{"purge steps", c.purge(outbox.PurgeParams{}, large)},
		{"purge failed steps", c.purge(outbox.PurgeParams{Failed: true}, large)},
	}
}

// enqueue enqueues twice as many messages as one call takes, into so many streams; 0 is none.
func (c *largeCalls) enqueue(topic string, streams int) func() {
	return func() {
		messages := suite.OrderedMessages(topic, max(streams, 1), 0, 2*large/max(streams, 1))
		for i := range messages {
			if streams == 0 {
				messages[i].StreamKey = ""
			}
		}
		var err error
		c.ids, err = c.outbox.Enqueue(c.Context(), c.pool, messages...)
		c.NoError(err)
	}
}

func (c *largeCalls) claim(topic string) func() {
	return func() {
		var err error
		c.held, err = c.outbox.Claim(c.Context(), outbox.ClaimParams{Topics: suite.Quotas(topic), Limit: large, Run: 1})
		c.NoError(err)
		c.Len(c.held, large)
	}
}

func (c *largeCalls) settle(outcome outbox.Outcome) func() {
	return func() {
		settlements := suite.Settled(outcome, c.held...)
		for i := range settlements {
			settlements[i].Delay = -1
		}
		refused, err := c.outbox.Settle(c.Context(), c.pool, settlements)
		c.NoError(err)
		c.Empty(refused)
	}
}

func (c *largeCalls) reap() {
	c.ExpireLeases()
	reaped, err := c.outbox.ReapExpired(c.Context())
	c.NoError(err)
	c.Equal(large, reaped)
}

func (c *largeCalls) purge(params outbox.PurgeParams, want int) func() {
	return func() {
		purged, err := c.outbox.Purge(c.Context(), params)
		c.NoError(err)
		c.Equal(want, purged, "%+v", params)
	}
}

// plans are those of the statements that a pool has run.
type plans struct {
	mu    sync.Mutex
	nodes []node
}

// A node is a step of a plan, with what it did.
type node struct {
	Kind      string  `json:"Node Type"`
	Table     string  `json:"Relation Name"`
	Function  string  `json:"Function Name"`
	Rows      float64 `json:"Actual Rows"`
	Loops     float64 `json:"Actual Loops"`
	Filtered  float64 `json:"Rows Removed by Filter"`
	Unmatched float64 `json:"Rows Removed by Join Filter"`
	Rechecked float64 `json:"Rows Removed by Index Recheck"`
	Plans     []node
}

// rows are those that a node has made or thrown away.
func (n node) rows() float64 { return (n.Rows + n.Filtered + n.Unmatched + n.Rechecked) * n.Loops }

// open opens a pool whose statements are explained.
func (p *plans) open(f *fixture, mode string) *sql.DB {
	f.T.Helper()
	config, err := pgx.ParseConfig(f.DB.DSN)
	f.NoError(err)
	for name, value := range map[string]string{
		"plan_cache_mode": mode, "session_preload_libraries": "auto_explain", "client_min_messages": "log",
		"auto_explain.log_min_duration": "0", "auto_explain.log_analyze": "on", "auto_explain.log_timing": "off",
		"auto_explain.log_nested_statements": "on", "auto_explain.log_format": "json",
	} {
		config.RuntimeParams[name] = value
	}
	config.OnNotice = func(_ *pgconn.PgConn, notice *pgconn.Notice) { p.add(f, notice.Message) }
	pool := stdlib.OpenDB(*config)
	f.T.Cleanup(func() { f.NoError(pool.Close()) })
	return pool
}

func (p *plans) add(f *fixture, notice string) {
	_, text, ok := strings.Cut(notice, "plan:")
	if !ok {
		return
	}
	var explained struct{ Plan node }
	if err := json.Unmarshal([]byte(text), &explained); err != nil {
		f.T.Errorf("%v: %s", err, notice)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.collect(explained.Plan)
}

func (p *plans) collect(n node) {
	for _, child := range n.Plans {
		p.collect(child)
	}
	n.Plans = nil
	p.nodes = append(p.nodes, n)
}

// take returns the nodes since it was last called.
func (p *plans) take() []node {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer func() { p.nodes = nil }()
	return p.nodes
}
