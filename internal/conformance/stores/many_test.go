package stores_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/faults"
	"github.com/incursa/watermill-outbox/internal/skipped"
	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/stores"
)

// manyPlan is the size of the measurement of many stores.
type manyPlan struct {
	sqlite, postgres int           // stores, besides the one that is offline
	waiting          int           // messages of the one with the backlog
	every            time.Duration // a message in each of the others, about
	quiet            time.Duration // for which the idle cost is measured, and latency without a backlog
	rounds           int           // in which stores come and go
	shared           bool          // the machine, with the rest of the suite and the race detector
}

// newManyPlan is small in the normal suite, and full where OUTBOX_TEST_STORES says so.
func newManyPlan() manyPlan {
	if os.Getenv("OUTBOX_TEST_STORES") == "full" {
		return manyPlan{sqlite: 200, postgres: 20, waiting: 100_000, every: time.Second, quiet: 10 * time.Second, rounds: 50}
	}
	return manyPlan{sqlite: 20, postgres: 3, waiting: 5_000, every: time.Second, quiet: 3 * time.Second, rounds: 10, shared: true}
}

// TestLong_ManyStores measures what a Subscriber over many databases costs, and what two bad ones do to the others: one does not
// answer, and one has a backlog. All configuration is the default, but for the strategy, Fair.
//
// Latency is from the commit of a message, as its publisher sees it, to the first line of its handler. The publishers have
// pools of their own and wake nobody, as in another process, so that it is polling that is measured. The handler takes a
// millisecond. What counts is the latency in the healthy stores while another has its backlog: 95 % are under a second. The idle cost is that of the
// time in which nobody publishes: what is sent to the databases (a BEGIN is a query too), and the connections that are open.
//
// The one that is offline is a PostgreSQL on a port that is closed; its pool counts the attempts to connect, which the pauses
// of its breaker have to allow.
func TestLong_ManyStores(t *testing.T) {
	// It does not run beside other tests: they would be measured too.
	m := newManyRun(t)
	m.subscribe()
	m.measureIdle()

	stop := m.publish()
	alone := m.measure("without a backlog", func() { <-time.After(m.quiet) })
	beside := m.measure("beside the backlog", m.drain)
	stop()
	m.check()

	t.Logf("%d stores on SQLite, %d on PostgreSQL, 1 offline", m.sqlite, m.postgres)
	t.Log(m.idle)
	t.Log(alone)
	t.Log(beside)
	t.Logf("backlog: %d messages in %v, %.0f a second", m.waiting, m.drained.Round(time.Millisecond), float64(m.waiting)/m.drained.Seconds())
	t.Logf("offline: %d attempts in %v; the breaker's pauses allow %d", m.attempts.Load(), m.age().Round(time.Second), m.allowed())
	m.Less(beside.percentile(95), m.bound(alone), "the 95th percentile of latency in healthy stores")
	m.LessOrEqual(m.attempts.Load(), m.allowed(), "attempts to reach the store that is offline")
	m.Positive(m.attempts.Load())
}

// TestManyStoresComeAndGo has a third of the stores leave, and others come back, while messages are published in all of them.
// None is lost and none comes twice, and no pool is opened for a store that has stayed.
func TestManyStoresComeAndGo(t *testing.T) {
	m := newManyRun(t)
	m.waiting = 0 // no backlog here
	m.subscribe()
	stop := m.publish()
	came := map[string]int{}
	for _, d := range m.databases {
		came[d.ID] = 1
	}
	present, left := m.databases, 0
	for range m.rounds {
		next := slices.DeleteFunc(slices.Clone(m.databases), func(stores.Database) bool { return rand.N(3) == 0 })
		for _, d := range next {
			if !slices.Contains(present, d) {
				came[d.ID]++
			}
		}
		for _, d := range present {
			if !slices.Contains(next, d) {
				left++
			}
		}
		m.refresh(next)
		present = next
		<-time.After(m.every / 4) // in which they get to work
	}
	m.refresh(m.databases)
	for _, d := range m.databases {
		if !slices.Contains(present, d) {
			came[d.ID]++
		}
	}
	stop()
	m.Eventually(func() bool { return m.missing(time.Now()) == 0 }, 2*suite.Patience, suite.Tick, "messages are never handled")
	m.check()
	m.Equal(came, m.opened)
	t.Logf("%d stores, which left %d times; %d messages, lost 0", len(m.databases), left, len(m.published))
}

// A manyRun is the databases, the subscriber over them and what is measured.
type manyRun struct {
	manyPlan
	*fixture // of the store with the backlog
	busy     *tenant
	healthy  []*tenant
	attempts atomic.Int64 // to connect to the store that is offline

	directory  *directory
	databases  []stores.Database // all that there are
	opened     map[string]int    // how often a pool was, by store
	provider   *stores.Dynamic
	subscriber *stores.Subscriber
	started    time.Time

	statements map[string]*atomic.Int64 // that the subscriber sent, by backend
	idle       string
	drained    time.Duration
	left       atomic.Int64 // of the backlog
	empty      chan struct{}

	mu                 sync.Mutex
	published, handled map[string]time.Time // by UUID, in the healthy stores
	repeated           int
}

func newManyRun(t *testing.T) *manyRun {
	m := &manyRun{
		manyPlan: newManyPlan(), statements: map[string]*atomic.Int64{}, empty: make(chan struct{}),
		directory: &directory{}, opened: map[string]int{},
		published: map[string]time.Time{}, handled: map[string]time.Time{},
	}
	var all []*tenant
	open := func(backend string, n int, database func() *testdb.DB) {
		m.statements[backend] = &atomic.Int64{}
		for i := range n {
			db := database()
			db.SetMaxOpenConns(2) // of the publisher
			db.SetMaxIdleConns(1)
			all = append(all, &tenant{suite.New(t, db, ""), fmt.Sprint(backend, " ", i)})
		}
	}
	backends := map[string]testdb.Backend{}
	for _, b := range testdb.Backends(t) {
		backends[b.Name] = b
	}
	if b, ok := backends[testdb.Postgres]; ok {
		open(testdb.Postgres, m.postgres, func() *testdb.DB { return newPostgresDatabase(t, b) })
	} else {
		m.postgres = 0
		skipped.Add(t.Name()+", the part on PostgreSQL", testdb.Postgres, "there is none in this run")
	}
	if b, ok := backends[testdb.SQLite]; ok {
		open(testdb.SQLite, m.sqlite, func() *testdb.DB { return b.Open(t) })
	} else {
		m.sqlite = 0
		skipped.Add(t.Name()+", the part on SQLite", testdb.SQLite, "there is none in this run")
	}
	if len(all) < 2 {
		t.Skip("neither SQLite nor PostgreSQL is there") // the list says so
	}
	m.busy, m.healthy, m.fixture = all[0], all[1:], &fixture{all[0].Fixture}
	m.install(all)
	return m
}

// newPostgresDatabase creates a database that is dropped when the test ends.
func newPostgresDatabase(t *testing.T, b testdb.Backend) *testdb.DB {
	server := b.Open(t)
	name := "many_" + server.Schema
	admin := func(statement string) {
		ctx, cancel := context.WithTimeout(context.Background(), suite.Patience)
		defer cancel()
		if _, err := server.ExecContext(ctx, statement); err != nil {
			t.Errorf("%s: %v", statement, err)
		}
	}
	admin("CREATE DATABASE " + name + " TEMPLATE template0")
	t.Cleanup(func() { admin("DROP DATABASE IF EXISTS " + name + " WITH (FORCE)") })
	dsn, err := url.Parse(server.DSN)
	require.NoError(t, err)
	dsn.Path = "/" + name
	return (&testdb.DB{Backend: b, DSN: dsn.String(), DriverName: server.DriverName}).Reopen(t)
}

// install migrates all, through the provider that the subscriber has too. The store that is offline fails.
func (m *manyRun) install(all []*tenant) {
	pools := map[string]func() *sql.DB{} // by store
	offline := closedPort(m.T)
	pools["offline"] = func() *sql.DB {
		return faults.Open(m.T, offline, faults.Hooks{Connect: func() { m.attempts.Add(1) }})
	}
	m.databases = []stores.Database{{ID: "offline", Dialect: outbox.Postgres{}}}
	for _, x := range all {
		count := m.statements[x.DB.Name]
		pools[x.id] = func() *sql.DB {
			return faults.Open(m.T, x.DB, faults.Hooks{Before: func(context.Context, faults.Statement) error {
				count.Add(1)
				return nil
			}})
		}
		m.databases = append(m.databases, x.database())
	}
	m.directory.set(m.databases...)
	m.provider = m.dynamic(m.directory, nil, func(c *stores.DynamicConfig) {
		c.Open = func(d stores.Database) (*sql.DB, error) {
			m.opened[d.ID]++
			db := pools[d.ID]()
			db.SetMaxOpenConns(4) // as by default
			db.SetMaxIdleConns(1)
			db.SetConnMaxIdleTime(time.Minute)
			return db, nil
		}
	})
	report, err := stores.Migrate(m.Context(), m.provider, stores.MigrateConfig{})
	m.Len(report.Failed(), 1, "%v", err)
	m.Equal("offline", report.Failed()[0].Store)
	m.attempts.Store(0)
}

// refresh has the provider discover the databases.
func (m *manyRun) refresh(databases []stores.Database) {
	m.directory.set(databases...)
	m.NoError(m.provider.Refresh(m.Context()))
}

// subscribe runs a Watermill router over all stores.
func (m *manyRun) subscribe() {
	fair, err := stores.NewFair(stores.FairConfig{})
	m.NoError(err)
	m.subscriber, err = stores.NewSubscriber(m.provider, stores.SubscriberConfig{Strategy: fair}, nil)
	m.NoError(err)
	m.T.Cleanup(func() {
		if err := m.subscriber.Close(); err != nil {
			m.T.Errorf("closing the subscriber: %v", err)
		}
	})
	m.started = time.Now()
	m.runRouter(func(router *message.Router) { router.AddConsumerHandler("t", "t", m.subscriber, m.handle) })
}

func (m *manyRun) handle(msg *message.Message) error {
	now := time.Now()
	<-time.After(time.Millisecond) // its work
	if store, _ := stores.FromContext(msg.Context()); store.ID() == m.busy.id {
		if m.left.Add(-1) == 0 {
			close(m.empty)
		}
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, again := m.handled[msg.UUID]; again {
		m.repeated++
	}
	m.handled[msg.UUID] = now
	return nil
}

// measureIdle waits until the pauses between claims are the longest, and counts.
func (m *manyRun) measureIdle() {
	m.Eventually(func() bool {
		idle := 0
		for _, s := range m.subscriber.Status() {
			if s.Claims > 8 && s.Store != "offline" {
				idle++
			}
		}
		return idle == m.sqlite+m.postgres
	}, 2*suite.Patience, suite.Tick, "stores are not polled")
	before, started := m.sent(), time.Now()
	<-time.After(m.quiet)
	took := time.Since(started).Seconds()
	var lines []string
	for backend, n := range m.sent() {
		if x := float64(n-before[backend]) / took; n > 0 {
			lines = append(lines, fmt.Sprintf("%.0f queries a second to %s, %.1f a store", x, backend, x/float64(m.count(backend))))
		}
	}
	slices.Sort(lines)
	connections := 0
	present, _ := m.provider.Stores()
	for _, s := range present {
		connections += s.DB().Stats().OpenConnections
	}
	m.idle = fmt.Sprintf("idle: %s; %d connections", strings.Join(lines, ", "), connections)
	m.LessOrEqual(connections, m.sqlite+m.postgres, "connections of idle stores")
}

func (m *manyRun) sent() map[string]int64 {
	sent := map[string]int64{}
	for backend, n := range m.statements {
		sent[backend] = n.Load()
	}
	return sent
}

func (m *manyRun) count(backend string) int {
	return map[string]int{testdb.SQLite: m.sqlite, testdb.Postgres: m.postgres}[backend]
}

// publish puts messages into the healthy stores until stop.
func (m *manyRun) publish() (stop func()) {
	ctx, cancel := context.WithCancel(m.Context())
	var publishing sync.WaitGroup
	for _, x := range m.healthy {
		o := x.elsewhere()
		publishing.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-time.After(m.every/2 + rand.N(m.every)): // never in step with the polling
				case <-ctx.Done():
					return
				}
				id := fmt.Sprint(x.id, " ", n)
				if _, err := o.Enqueue(context.WithoutCancel(ctx), x.DB.DB, outbox.Message{Topic: "t", UUID: id}); err != nil {
					m.T.Errorf("publishing in %s: %v", x.id, err)
					return
				}
				m.mu.Lock()
				m.published[id] = time.Now()
				m.mu.Unlock()
			}
		})
	}
	return func() {
		cancel()
		publishing.Wait()
	}
}

// elsewhere is the tenant's outbox as another process has it: it wakes nobody here.
func (x *tenant) elsewhere() *outbox.Outbox {
	return x.NewOutbox(x.DB.DB, func(c *outbox.Config) { c.Store = "elsewhere" })
}

// drain publishes the backlog and waits until it is handled.
func (m *manyRun) drain() {
	m.left.Store(int64(m.waiting))
	messages := slices.Repeat([]outbox.Message{{Topic: "t", Payload: []byte("one of many")}}, m.waiting)
	_, err := m.busy.elsewhere().Enqueue(m.Context(), m.busy.DB.DB, messages...)
	m.NoError(err)
	started := time.Now()
	select {
	case <-m.empty:
	case <-time.After(10 * time.Minute):
		m.FailNow("the backlog is never handled", "%d are left", m.left.Load())
	}
	m.drained = time.Since(started)
}
