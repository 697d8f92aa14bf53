package stores_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/stores"
)

func TestOBX060_EachDatabaseHasItsOwnStore(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		tenants := f.tenants("a", "b")
		present, changed := f.static(tenants...).Stores()
		f.Nil(changed)
		f.Len(present, 2)
		for i, s := range present {
			f.NotSame(present[1-i].DB(), s.DB())
			f.NotSame(present[1-i].Outbox(), s.Outbox())
			_, err := s.Outbox().Enqueue(f.Context(), s.DB(), outbox.Message{Topic: "t"}, outbox.Message{Topic: s.ID()})
			f.NoError(err)
		}
		for _, x := range tenants {
			f.Equal(2, x.Count())
			f.EqualValues(1, x.Number("SELECT COUNT(*) FROM {all} WHERE {topic} = '%s'", x.id))
		}
		f.Zero(f.Count())
	})
}

func TestOBX064_AStoreKeepsItsIdentifier(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		tenants := f.tenants("a", "b")
		d := &directory{}
		d.set(tenants[0].database(), tenants[1].database())
		p := f.dynamic(d, nil)
		f.Equal([]string{"a", "b"}, ids(p))
		present, _ := p.Stores()
		f.NoError(p.Refresh(f.Context()))
		again, _ := p.Stores()
		f.Equal(present, again)
		f.Equal("a", again[0].ID())
		f.Equal("a", again[0].Database().ID)
		d.set(tenants[1].database(), tenants[0].database())
		f.NoError(p.Refresh(f.Context()))
		f.Equal([]string{"b", "a"}, ids(p), "the order of the discovery")
		f.Same(present[0].DB(), f.storeIn(p, "a").DB())
	})
}

func (f *fixture) storeIn(p stores.Provider, id string) *stores.Store {
	f.T.Helper()
	present, _ := p.Stores()
	for _, s := range present {
		if s.ID() == id {
			return s
		}
	}
	f.FailNow("there is no store " + id)
	return nil
}

func TestOBX069_TheDiscoveryIsAskedAgainAndAgain(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		x := f.tenants("new")[0]
		d := &directory{}
		p := f.dynamic(d, nil, func(c *stores.DynamicConfig) { c.RefreshInterval = 5 * time.Millisecond })
		f.Empty(ids(p))
		_, changed := p.Stores()
		d.set(x.database())
		suite.Take(f.T, changed, "a change")
		f.Equal([]string{"new"}, ids(p))
		f.NoError(f.storeIn(p, "new").DB().PingContext(f.Context()))
	})
}

// By a clock that the test moves.
func TestOBX070_TheDiscoveryIsAskedEveryFiveMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &directory{}
		p, err := stores.NewDynamic(t.Context(), d, stores.DynamicConfig{}, nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, p.Close()) }()
		pass := func(duration time.Duration, asked int) {
			<-time.After(duration)
			synctest.Wait()
			d.mu.Lock()
			defer d.mu.Unlock()
			require.Equal(t, asked, d.asked)
		}
		pass(5*time.Minute-time.Millisecond, 1)
		pass(2*time.Millisecond, 2)
		pass(5*time.Minute, 3)
		d.fail(errors.New("the directory is away"))
		pass(5*time.Minute, 4)
		pass(5*time.Second, 5) // again sooner, and later each time
		pass(10*time.Second, 6)
		pass(20*time.Second, 7)
		d.set()
		pass(40*time.Second, 8)
		pass(5*time.Minute-2*time.Millisecond, 8)
		pass(2*time.Millisecond, 9)
	})
}

func TestOBX071_ANewDatabaseGetsAStore(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		tenants := f.tenants("a", "b")
		for _, x := range tenants {
			x.EnqueueN("t", 1)
		}
		d := &directory{}
		d.set(tenants[0].database())
		book := suite.NewLogBook()
		p := f.dynamic(d, book)
		messages := f.subscribeAll(f.everywhere(p, nil), "t")
		f.receiveFrom(messages, "a")
		d.set(tenants[0].database(), tenants[1].database())
		f.NoError(p.Refresh(f.Context()))
		f.receiveFrom(messages, "b")
		f.Len(book.At("INFO", "Opened a store"), 2)
		f.Equal("b", book.At("INFO", "Opened a store")[1].Fields["store"])
	})
}

// The pool of a store that is gone is closed, but only once those that use it have let go.
func TestOBX072_AStoreGoesWithItsDatabase(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		tenants := f.tenants("a", "b")
		handled := tenants[0].EnqueueN("t", 1)
		d := &directory{}
		d.set(tenants[0].database(), tenants[1].database())
		p := f.dynamic(d, nil)
		s := f.everywhere(p, nil, func(c *stores.SubscriberConfig) { c.Subscriber.DrainTimeout = suite.Patience })
		messages := f.subscribeAll(s, "t")
		msg := f.Receive(messages)
		gone, unused := f.storeIn(p, "a"), f.storeIn(p, "b")

		d.set()
		f.NoError(p.Refresh(f.Context()))
		f.Empty(ids(p))
		f.Eventually(func() bool { return unused.DB().PingContext(f.Context()) != nil }, suite.Patience, suite.Tick)
		f.NoError(gone.DB().PingContext(f.Context()), "its handler is not done")
		f.NoError(msg.Context().Err())
		msg.Ack()
		tenants[0].Becomes(handled[0], outbox.Done)
		f.Eventually(func() bool { return gone.DB().PingContext(f.Context()) != nil }, suite.Patience, suite.Tick)
		f.Empty(s.Status())

		// And comes back with it.
		d.set(tenants[0].database())
		f.NoError(p.Refresh(f.Context()))
		f.NotSame(gone, f.storeIn(p, "a"))
		tenants[0].EnqueueN("t", 1)
		f.receiveFrom(messages, "a")
		tenants[0].allDone()
	})
}

func TestOBX073_AnUnchangedDatabaseKeepsItsStore(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		tenants := f.tenants("a", "b")
		a, b := tenants[0].database(), tenants[1].database()
		d := &directory{}
		d.set(a, b)
		var opened atomic.Int32
		p := f.dynamic(d, nil, func(c *stores.DynamicConfig) {
			c.Open = func(d stores.Database) (*sql.DB, error) {
				opened.Add(1)
				return sql.Open(d.Driver, d.DSN)
			}
		})
		first, changed := p.Stores()
		for range 10 {
			f.NoError(p.Refresh(f.Context()))
		}
		same, still := p.Stores()
		f.Equal(first, same)
		f.Equal(changed, still, "nobody is told of a change")
		f.EqualValues(2, opened.Load())

		// Another weight is no other database.
		b.Weight = 7
		d.set(a, b)
		f.NoError(p.Refresh(f.Context()))
		f.EqualValues(2, opened.Load())
		f.Equal(7, first[1].Weight())

		// What has changed is replaced, under the same identifier.
		b.Table = "elsewhere"
		d.set(a, b)
		f.NoError(p.Refresh(f.Context()))
		f.EqualValues(3, opened.Load())
		f.Same(first[0], f.storeIn(p, "a"))
		f.NotSame(first[1], f.storeIn(p, "b"))
		f.Error(first[1].DB().PingContext(f.Context()))
	})
}

// A discovery that fails, or returns nonsense, is named and harms no existing store.
func TestABadDiscoveryHarmsNoStore(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		tenants := f.tenants("a", "b", "c")
		a, b, c := tenants[0].database(), tenants[1].database(), tenants[2].database()
		d := &directory{}
		d.set(a, b)
		book := suite.NewLogBook()
		p := f.dynamic(d, book)
		before, _ := p.Stores()

		down := errors.New("the directory is away")
		d.fail(down)
		f.ErrorIs(p.Refresh(f.Context()), down)
		after, _ := p.Stores()
		f.Equal(before, after)

		long := strings.Repeat("x", 256)
		for name, bad := range map[string]struct {
			databases []stores.Database
			want      []string
			named     string
		}{
			"twice, one of them known":    {[]stores.Database{a, b, a}, []string{"a", "b"}, "a"},
			"twice, differently":          {[]stores.Database{a, b, {ID: "b", Dialect: b.Dialect, DSN: "secret"}}, []string{"a", "b"}, "b"},
			"twice, new":                  {[]stores.Database{a, b, c, c}, []string{"a", "b"}, "c"},
			"no identifier":               {[]stores.Database{a, b, {Dialect: a.Dialect}}, []string{"a", "b"}, ""},
			"a long one":                  {[]stores.Database{a, b, {ID: long, Dialect: a.Dialect}}, []string{"a", "b"}, long},
			"white space":                 {[]stores.Database{a, b, {ID: "c ", Dialect: a.Dialect}}, []string{"a", "b"}, "c "},
			"no dialect":                  {[]stores.Database{a, b, {ID: "c"}}, []string{"a", "b"}, "c"},
			"the dialect is gone":         {[]stores.Database{a, {ID: "b"}}, []string{"a", "b"}, "b"},
			"a negative weight":           {[]stores.Database{a, b, {ID: "c", Dialect: a.Dialect, Weight: -1}}, []string{"a", "b"}, "c"},
			"a driver that there is not":  {[]stores.Database{a, b, {ID: "c", Dialect: a.Dialect, Driver: "none", DSN: "secret"}}, []string{"a", "b"}, "c"},
			"a table name of 500 letters": {[]stores.Database{a, b, {ID: "c", Dialect: a.Dialect, Driver: a.Driver, DSN: a.DSN, Table: long + long}}, []string{"a", "b"}, "c"},
		} {
			book.Shared.Mu.Lock()
			book.Shared.Lines = nil
			book.Shared.Mu.Unlock()
			d.set(bad.databases...)
			f.NoError(p.Refresh(f.Context()), name)
			f.Equal(bad.want, ids(p), name)
			after, _ := p.Stores()
			f.Same(before[0], after[0], name)
			f.Same(before[1], after[1], name)
			lines := book.At("ERROR", "cannot be used")
			f.Len(lines, 1, name)
			f.Equal(bad.named, lines[0].Fields["store"], name)
			f.NotContains(fmt.Sprint(book.Lines()), "secret", name)
		}

		// The entry that was wrong is used when it is right.
		d.set(a, b, c)
		f.NoError(p.Refresh(f.Context()))
		f.Equal([]string{"a", "b", "c"}, ids(p))
	})
}

func TestOBX060_DuplicateStoresAreRefused(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		x := f.tenants("twin")[0]
		_, err := stores.NewStatic(x.storeOn(x.DB.DB, nil), x.storeOn(x.DB.DB, nil))
		f.ErrorIs(err, stores.ErrDuplicateStore)
		f.ErrorContains(err, `"twin"`)
		_, err = stores.NewStatic(nil)
		f.Error(err)
		_, err = stores.New(nil, x.database(), outbox.Config{}, nil)
		f.ErrorIs(err, base.ErrNilDB)
		_, err = stores.New(x.DB.DB, stores.Database{ID: "x"}, outbox.Config{}, nil)
		f.RequireField(err, "Database.Dialect")
		_, err = stores.New(x.DB.DB, stores.Database{ID: "x", Dialect: x.Config.Dialect, Table: " x"}, outbox.Config{}, nil)
		f.RequireField(err, "Database.Table")
		other := outbox.Dialect(outbox.Postgres{})
		if x.Config.Dialect == other {
			other = outbox.SQLServer{}
		}
		_, err = stores.New(x.DB.DB, stores.Database{ID: "x", Dialect: other}, outbox.Config{}, nil)
		f.RequireField(err, "Database.Dialect")
		_, err = stores.New(x.DB.DB, stores.Database{ID: "x", Dialect: x.Config.Dialect}, outbox.Config{WorkerName: "\xff"}, nil)
		f.RequireField(err, "Config.WorkerName")
		f.NotContains(fmt.Sprintf("%v %+v %#v %s", x.database(), x.database(), x.database(), x.database()), x.DB.DSN)
	})
}

// Bad settings are errors that name the field.
func TestStoresConfigsAreValidated(t *testing.T) {
	t.Parallel()
	none := stores.DiscoveryFunc(func(context.Context) ([]stores.Database, error) { return nil, nil })
	field := func(err error) string {
		var bad *outbox.FieldError
		require.ErrorAs(t, err, &bad)
		return bad.Field
	}
	for want, change := range map[string]func(*stores.DynamicConfig){
		"DynamicConfig.RefreshInterval": func(c *stores.DynamicConfig) { c.RefreshInterval = -1 },
		"DynamicConfig.RefreshTimeout":  func(c *stores.DynamicConfig) { c.RefreshTimeout = -1 },
		"DynamicConfig.RetryInterval":   func(c *stores.DynamicConfig) { c.RetryInterval = time.Hour },
		"DynamicConfig.MaxOpenConns":    func(c *stores.DynamicConfig) { c.MaxOpenConns = -1 },
		"DynamicConfig.MaxIdleConns":    func(c *stores.DynamicConfig) { c.MaxIdleConns = -1 },
		"DynamicConfig.ConnMaxIdleTime": func(c *stores.DynamicConfig) { c.ConnMaxIdleTime = -1 },
	} {
		var config stores.DynamicConfig
		change(&config)
		_, err := stores.NewDynamic(t.Context(), none, config, nil)
		require.Equal(t, want, field(err))
	}
	_, err := stores.NewDynamic(t.Context(), nil, stores.DynamicConfig{}, nil)
	require.Equal(t, "discovery", field(err))
	down := errors.New("down")
	_, err = stores.NewDynamic(t.Context(), stores.DiscoveryFunc(func(context.Context) ([]stores.Database, error) { return nil, down }),
		stores.DynamicConfig{}, nil)
	require.ErrorIs(t, err, down)

	empty, err := stores.NewStatic()
	require.NoError(t, err)
	for want, change := range map[string]func(*stores.SubscriberConfig){
		"SubscriberConfig.MaxInFlight":                 func(c *stores.SubscriberConfig) { c.MaxInFlight = -1 },
		"SubscriberConfig.Concurrency":                 func(c *stores.SubscriberConfig) { c.Concurrency = -1 },
		"SubscriberConfig.RetryMin":                    func(c *stores.SubscriberConfig) { c.RetryMin = -1 },
		"SubscriberConfig.Subscriber.LeaseDuration":    func(c *stores.SubscriberConfig) { c.Subscriber.LeaseDuration = -1 },
		"SubscriberConfig.Subscriber.ClaimTimeout":     func(c *stores.SubscriberConfig) { c.Subscriber.ClaimTimeout = -1 },
		"SubscriberConfig.Subscriber.Janitor.Interval": func(c *stores.SubscriberConfig) { c.Subscriber.Janitor.Interval = -1 },
		"SubscriberConfig.Subscriber.ConsumerGroup":    func(c *stores.SubscriberConfig) { c.Subscriber.ConsumerGroup = "g" },
		"SubscriberConfig.Subscriber.Wakeups":          func(c *stores.SubscriberConfig) { c.Subscriber.Wakeups = make(chan string) },
	} {
		var config stores.SubscriberConfig
		change(&config)
		_, err := stores.NewSubscriber(empty, config, nil)
		require.Equal(t, want, field(err))
	}
	_, err = stores.NewSubscriber(empty, stores.SubscriberConfig{Concurrency: math.MaxInt}, nil)
	require.Equal(t, "SubscriberConfig.Concurrency", field(err))
	_, err = stores.NewSubscriber(nil, stores.SubscriberConfig{}, nil)
	require.Equal(t, "provider", field(err))
	_, err = stores.NewRouter(nil, stores.RouterConfig{}, nil)
	require.Equal(t, "provider", field(err))
	_, err = stores.Migrate(t.Context(), nil, stores.MigrateConfig{})
	require.Equal(t, "provider", field(err))
	require.Equal(t, "f", field(stores.Run(t.Context(), empty, nil, nil)))

	s, err := stores.NewSubscriber(empty, stores.SubscriberConfig{}, nil)
	require.NoError(t, err)
	_, err = s.Subscribe(t.Context(), "")
	require.Equal(t, "Topic", field(err))
	_, err = s.Subscribe(t.Context(), "t ")
	require.Equal(t, "Topic", field(err))
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	_, err = s.Subscribe(t.Context(), "t")
	require.ErrorIs(t, err, outbox.ErrClosed)
}
