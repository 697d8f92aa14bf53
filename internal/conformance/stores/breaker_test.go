package stores_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/faults"
	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/stores"
)

// A store that goes down is left alone, with one line when it goes and one when it is back; the others are not affected.
func TestAStoreThatIsDownHarmsNoOther(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		tenants := f.tenants("down", "up")
		var down atomic.Bool
		var sent atomic.Int32
		broken := errors.New("the server is being restarted")
		pool := faults.Open(t, tenants[0].DB, faults.Hooks{Before: func(_ context.Context, s faults.Statement) error {
			if down.Load() && s.Text != faults.Rollback && !strings.HasPrefix(s.Text, "ROLLBACK") {
				sent.Add(1)
				return broken
			}
			return nil
		}})
		book := suite.NewLogBook()
		p := f.staticOf(tenants[0].storeOn(pool, nil), tenants[1].storeOn(tenants[1].DB.DB, nil))
		s := f.everywhere(p, book, func(c *stores.SubscriberConfig) {
			c.RetryMax = 20 * time.Millisecond
			c.Subscriber.UnhandledAfter = 5 * time.Millisecond // it would look for topics without a handler as often
		})
		messages := f.subscribeAll(s, "t")
		for _, x := range tenants {
			x.EnqueueN("t", 1)
			f.receiveFrom(messages, x.id)
			x.allDone()
		}
		f.Eventually(func() bool { return statusOf(s, "down").InFlight == 0 }, suite.Patience, suite.Tick)

		down.Store(true)
		tenants[0].EnqueueN("t", 2)
		f.Equal(map[string]any{"store": "down"}, map[string]any(f.Await(book, "ERROR", "does not answer").Fields))
		f.Eventually(func() bool { return statusOf(s, "down").Failures >= 4 }, suite.Patience, suite.Tick)
		status := statusOf(s, "down")
		f.Equal(stores.Open, status.State)
		f.ErrorIs(status.LastError, broken)
		f.Equal(stores.Closed, statusOf(s, "up").State)
		tenants[1].EnqueueN("t", 10)
		for range 10 {
			f.receiveFrom(messages, "up")
		}
		tenants[1].allDone()

		down.Store(false)
		for range 2 {
			f.receiveFrom(messages, "down")
		}
		tenants[0].allDone()
		f.Equal("down", f.Await(book, "INFO", "answers again").Fields["store"])
		f.Len(book.At("ERROR", "does not answer"), 1, "one line, however often it was tried")
		f.Equal(stores.Closed, statusOf(s, "down").State)
		f.ErrorIs(statusOf(s, "down").LastError, broken)
		f.Less(int64(sent.Load()), statusOf(s, "down").Failures*2+10, "what is down is asked by claims only")
	})
}

// A store that cannot be reached at the start is no error but that of its store.
func TestAStoreThatCannotBeReachedAtTheStart(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		x := f.tenants("up")[0]
		nowhere := x.database()
		nowhere.ID = "nowhere"
		nowhere.DSN = map[string]string{
			testdb.SQLite:    "file:/nowhere/at/all/outbox.db?_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)&_txlock=immediate",
			testdb.Postgres:  "postgres://nobody@127.0.0.1:1/none?sslmode=disable",
			testdb.SQLServer: "sqlserver://nobody:secret@127.0.0.1:1?database=none",
		}[f.DB.Name]
		d := &directory{}
		d.set(nowhere, x.database())
		book := suite.NewLogBook()
		s := f.everywhere(f.dynamic(d, book), book)
		messages := f.subscribeAll(s, "t")
		x.EnqueueN("t", 5)
		for range 5 {
			f.receiveFrom(messages, "up")
		}
		x.allDone()
		line := f.Await(book, "ERROR", "does not answer")
		f.Equal("nowhere", line.Fields["store"])
		f.Error(line.Err)
		f.Equal(stores.Open, statusOf(s, "nowhere").State)
	})
}

// A store that hangs, with a driver that heeds no context, keeps the only lane for a moment and not for good.
func TestAStoreThatHangsHarmsNoOther(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		tenants := f.tenants("hangs", "up")
		var hang atomic.Bool
		released := make(chan struct{})
		release := sync.OnceFunc(func() { close(released) })
		reached := make(chan struct{}, 100)
		pool := faults.Open(t, tenants[0].DB, faults.Hooks{Before: func(context.Context, faults.Statement) error {
			if hang.Load() {
				reached <- struct{}{}
				<-released
			}
			return nil
		}})
		p := f.staticOf(tenants[0].storeOn(pool, nil), tenants[1].storeOn(tenants[1].DB.DB, nil))
		s := f.everywhere(p, nil, func(c *stores.SubscriberConfig) {
			c.Concurrency, c.MaxInFlight, c.Subscriber.ClaimTimeout = 1, 2, 2*time.Second
		})
		t.Cleanup(release)
		messages := f.subscribeAll(s, "t")
		f.Eventually(func() bool { return statusOf(s, "hangs").Claims > 0 && statusOf(s, "up").Claims > 0 }, suite.Patience, suite.Tick)
		hang.Store(true)
		suite.Take(f.T, reached, "the claim that hangs")
		tenants[0].EnqueueN("t", 3)
		tenants[1].EnqueueN("t", 10)
		for range 10 {
			f.receiveFrom(messages, "up")
		}
		tenants[1].allDone()
		f.Eventually(func() bool { return statusOf(s, "hangs").State == stores.Open }, suite.Patience, suite.Tick)
		f.ErrorContains(statusOf(s, "hangs").LastError, "does not heed the timeout")

		hang.Store(false)
		release()
		for range 3 {
			f.receiveFrom(messages, "hangs")
		}
		tenants[0].allDone()
		f.Eventually(func() bool { return statusOf(s, "hangs").State == stores.Closed }, suite.Patience, suite.Tick)
		f.Eventually(func() bool { return statusOf(s, "hangs").InFlight+statusOf(s, "up").InFlight == 0 }, suite.Patience, suite.Tick)
	})
}

// A slow claim whose driver heeds its context fails after ClaimTimeout, with one Subscriber as with many.
func TestClaimTimeoutEndsAClaim(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		var hang atomic.Bool
		pool := faults.Open(t, f.DB, faults.Hooks{Before: func(ctx context.Context, _ faults.Statement) error {
			if hang.Load() {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}})
		book := suite.NewLogBook()
		hang.Store(true)
		s := f.SubscriberOn(pool, book, func(c *outbox.SubscriberConfig) { c.ClaimTimeout = 300 * time.Millisecond })
		messages := f.Subscribe(s, "t")
		f.ErrorIs(f.Await(book, "ERROR", "Cannot claim").Err, context.DeadlineExceeded)
		hang.Store(false)
		f.EnqueueN("t", 1)
		f.Receive(messages).Ack()
		f.Eventually(func() bool { return len(f.Rows("{status} = 2")) == 1 }, suite.Patience, suite.Tick)
	})
}

// Migrations over all stores go on after a failure, and the report names what failed and why.
func TestMigrateGoesThroughAllStores(t *testing.T) {
	forEachEmpty(t, func(t *testing.T, f *fixture) {
		var databases []stores.Database
		var list []*tenant
		for _, id := range []string{"a", "b", "c", "d"} {
			x := &tenant{suite.New(t, f.DB.Open(t), ""), id}
			list = append(list, x)
			databases = append(databases, x.database())
		}
		nowhere := databases[1]
		nowhere.ID = "nowhere"
		nowhere.DSN = map[string]string{
			testdb.SQLite: "file:/nowhere/at/all/outbox.db?_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)&_txlock=immediate", testdb.Postgres: "postgres://nobody@127.0.0.1:1/none?sslmode=disable",
			testdb.SQLServer: "sqlserver://nobody@127.0.0.1:1?database=none"}[f.DB.Name]
		d := &directory{}
		d.set(databases[0], databases[1], nowhere, databases[2], databases[3])
		var open, most atomic.Int32
		p := f.dynamic(d, nil)
		var steps []stores.Progress
		report, err := stores.Migrate(f.Context(), p, stores.MigrateConfig{Concurrency: 2, OnProgress: func(p stores.Progress) {
			most.Store(max(most.Load(), open.Add(1)))
			steps = append(steps, p)
			open.Add(-1)
		}})
		f.ErrorContains(err, `store "nowhere"`)
		f.EqualValues(1, most.Load(), "one call at a time")
		f.Len(report, 5)
		f.Len(report.Failed(), 1)
		f.Equal("nowhere", report.Failed()[0].Store)
		f.ErrorIs(err, report.Failed()[0].Err)
		f.Len(steps, 5)
		for i, step := range steps {
			f.Equal([]int{i + 1, 5}, []int{step.Done, step.Total})
		}
		f.Equal(1, steps[4].Failed)
		checked := f.DB.Name != testdb.SQLServer || f.Lacks(suite.IndexNames)+f.Lacks(suite.Level130) == ""
		for _, x := range list {
			if checked {
				f.NoError(outbox.Check(f.Context(), x.DB.DB, x.MigrateConfig()))
			}
			x.EnqueueN("t", 1)
		}

		// Again, with all of them there; and not at all after the context has ended.
		d.set(databases...)
		f.NoError(p.Refresh(f.Context()))
		report, err = stores.Migrate(f.Context(), p, stores.MigrateConfig{})
		f.NoError(err)
		f.Empty(report.Failed())
		ended, cancel := context.WithCancel(f.Context())
		cancel()
		report, err = stores.Migrate(ended, p, stores.MigrateConfig{})
		f.ErrorIs(err, context.Canceled)
		f.Len(report.Failed(), 4)
		_, err = stores.Migrate(f.Context(), p, stores.MigrateConfig{Concurrency: -1})
		f.RequireField(err, "MigrateConfig.Concurrency")
		_, err = stores.Migrate(f.Context(), p, stores.MigrateConfig{Timeout: -1})
		f.RequireField(err, "MigrateConfig.Timeout")
	})
}
