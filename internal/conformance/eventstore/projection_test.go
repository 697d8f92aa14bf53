package eventstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/eventstore"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
	"github.com/incursa/watermill-outbox/internal/testprocess"
)

func (f *fixture) projection(config eventstore.ProjectionConfig) *eventstore.Projection {
	f.T.Helper()
	p, err := f.store.NewProjection(config)
	f.NoError(err)
	return p
}

func (f *fixture) waitFor(group, stream string, version int64) {
	f.T.Helper()
	ctx, cancel := context.WithTimeout(f.ctx(), testoutbox.Patience)
	defer cancel()
	f.NoError(f.store.WaitFor(ctx, group, stream, version))
}

// A sum is a view of a projection: one row an event.
func (f *fixture) createSum(name string) {
	f.T.Helper()
	f.Exec("CREATE TABLE %s (position_of BIGINT NOT NULL, n BIGINT NOT NULL)", f.Table(name))
}

func addTo(table string) func(context.Context, *sql.Tx, eventstore.Event) error {
	return func(ctx context.Context, tx *sql.Tx, e eventstore.Event) error {
		n, err := strconv.Atoi(string(e.Payload))
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO %s (position_of, n) VALUES (%d, %d)", table, e.Position, n))
		return err
	}
}

// hasSum asserts that the view has each of n events once.
func (f *fixture) hasSum(name string, n int) {
	f.T.Helper()
	f.Equal(n, f.Number("SELECT COUNT(*) FROM %s", f.Table(name)), "rows of %s", name)
	f.Equal(n, f.Number("SELECT COUNT(DISTINCT position_of) FROM %s", f.Table(name)))
	f.Equal(n*(n-1)/2, f.Number("SELECT COALESCE(SUM(n), 0) FROM %s", f.Table(name)))
}

func TestLong_AProjectionThatIsStoppedAgainAndAgainAppliesEachEventOnce(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.createSum("view")
		f.sequence()
		stops, n := 20, 200
		if f.DB.Name == testdb.SQLServer {
			stops, n = 3, 30
		}
		add := addTo(f.Table("view"))
		var all group
		for i := range n / 2 {
			f.append(fmt.Sprint("s", i%7), eventstore.Any, events(i, 1)...)
		}
		all.Go(func() error {
			for i := n / 2; i < n; i++ {
				if _, err := f.store.Append(t.Context(), nil, fmt.Sprint("s", i%7), eventstore.Any, events(i, 1)...); err != nil {
					return err
				}
			}
			return nil
		})
		for stop := range stops {
			ctx, cancel := context.WithCancel(f.ctx())
			applied := 0
			p := f.projection(eventstore.ProjectionConfig{Name: "view", BatchSize: 1 + stop, Apply: func(ctx context.Context, tx *sql.Tx, e eventstore.Event) error {
				if applied++; applied > stop%3 {
					defer cancel() // in the middle of a transaction, or at its end
				}
				return add(ctx, tx, e)
			}, OnLive: func(int64) { cancel() }})
			f.NoError(p.Run(ctx))
			cancel()
		}
		f.NoError(all.Wait())
		f.background(f.projection(eventstore.ProjectionConfig{Name: "view", Apply: add}).Run)
		for i := n - 7; i < n; i++ {
			f.waitFor("view", fmt.Sprint("s", i%7), int64(i/7)+1)
		}
		f.hasSum("view", n)
	})
}

// Marten's continuous daemon skips events that cannot be applied, and the view is wrong from then on.
func TestAPoisonEventStopsTheProjectionByNameAndIsNotSkipped(t *testing.T) {
	forEach(t, func(_ *testing.T, f *fixture) {
		f.createSum("view")
		f.append("s", eventstore.NoStream, events(0, 3)...)
		f.append("s", eventstore.Exactly(3), eventstore.Event{Type: "poison", Payload: []byte("x")})
		f.append("s", eventstore.Exactly(4), events(3, 2)...)
		f.stamp()
		add := addTo(f.Table("view"))
		for range 2 {
			err := f.projection(eventstore.ProjectionConfig{Name: "view", Apply: add}).Run(f.ctx())
			var poison *eventstore.ProjectionError
			f.ErrorAs(err, &poison)
			f.ErrorIs(err, strconv.ErrSyntax)
			f.Equal("view", poison.Projection)
			f.Equal([]any{int64(4), int64(4), "s", "poison"}, []any{poison.Event.Position, poison.Event.Version, poison.Event.Stream, poison.Event.Type})
			for _, part := range []string{"view", "position 4", `"s"`, "poison"} {
				f.ErrorContains(err, part)
			}
			f.Equal(3, f.Number("SELECT COUNT(*) FROM %s", f.Table("view")), "those before it are applied")
		}
		f.background(f.projection(eventstore.ProjectionConfig{Name: "view", Apply: func(ctx context.Context, tx *sql.Tx, e eventstore.Event) error {
			if e.Type == "poison" {
				return nil
			}
			return add(ctx, tx, e)
		}}).Run)
		f.waitFor("view", "s", 6)
		f.hasSum("view", 5)
	})
}

func TestAProjectionWhoseTableIsGoneStopsWithAClearErrorAndNothingHalfWritten(t *testing.T) {
	forEach(t, func(_ *testing.T, f *fixture) {
		f.createSum("first")
		f.append("s", eventstore.NoStream, events(0, 2)...)
		f.stamp()
		first, gone := addTo(f.Table("first")), addTo(f.Table("gone"))
		both := func(ctx context.Context, tx *sql.Tx, e eventstore.Event) error {
			return errors.Join(first(ctx, tx, e), gone(ctx, tx, e))
		}
		err := f.projection(eventstore.ProjectionConfig{Name: "view", Apply: both}).Run(f.ctx())
		var stopped *eventstore.ProjectionError
		f.ErrorAs(err, &stopped)
		f.Equal(int64(1), stopped.Event.Position)
		f.ErrorContains(err, "gone")
		f.hasSum("first", 0)
		f.createSum("gone")
		f.background(f.projection(eventstore.ProjectionConfig{Name: "view", Apply: both}).Run)
		f.waitFor("view", "s", 2)
		f.hasSum("first", 2)
		f.hasSum("gone", 2)
	})
}

// A batch that is refused is applied event by event. One of these may meet trouble of its own for the first time then.
func TestAProjectionStopsOnlyAtAnEventThatWasRefusedTwice(t *testing.T) {
	forEach(t, func(_ *testing.T, f *fixture) {
		f.createSum("view")
		f.append("s", eventstore.NoStream, events(0, 3)...)
		f.stamp()
		add, tried := addTo(f.Table("view")), map[int64]int{}
		f.background(f.projection(eventstore.ProjectionConfig{Name: "view", Apply: func(ctx context.Context, tx *sql.Tx, e eventstore.Event) error {
			tried[e.Version]++
			if e.Version == 2 && tried[2] == 1 || e.Version == 1 && tried[1] == 2 {
				return errors.New("refused once")
			}
			return add(ctx, tx, e)
		}}).Run)
		f.waitFor("view", "s", 3)
		f.hasSum("view", 3)
	})
}

// What a handler needs may be away for a while; that is no reason to stop.
func TestAnOutageOfWhatApplyNeedsIsWaitedFor(t *testing.T) {
	forEach(t, func(_ *testing.T, f *fixture) {
		f.append("s", eventstore.NoStream, events(0, 2)...)
		f.stamp()
		var tried atomic.Int64
		f.background(f.projection(eventstore.ProjectionConfig{Name: "view", Apply: func(context.Context, *sql.Tx, eventstore.Event) error {
			if tried.Add(1) < 6 {
				return outbox.Unavailable(errors.New("away"))
			}
			return nil
		}}).Run)
		f.waitFor("view", "s", 2)
		f.Equal(int64(7), tried.Load())
	})
}

func TestAProjectionIsRebuiltUnderANewNameBesideTheRunningOne(t *testing.T) {
	forEach(t, func(_ *testing.T, f *fixture) {
		f.createSum("old")
		f.createSum("new")
		f.sequence()
		f.append("s", eventstore.NoStream, events(0, 10)...)
		f.background(f.projection(eventstore.ProjectionConfig{Name: "view 1", Apply: addTo(f.Table("old"))}).Run)
		f.waitFor("view 1", "s", 10)
		live := make(chan int64, 10)
		f.background(f.projection(eventstore.ProjectionConfig{
			Name: "view 2", BatchSize: 3, Apply: addTo(f.Table("new")), OnLive: func(position int64) { live <- position }}).Run)
		f.Equal(int64(10), <-live)
		f.append("s", eventstore.Exactly(10), events(10, 5)...)
		f.waitFor("view 1", "s", 15)
		f.waitFor("view 2", "s", 15)
		f.hasSum("old", 15)
		f.hasSum("new", 15)
	})
}

// Two processes that run the same projection take turns; neither applies what the other has applied.
func TestTwoRunsOfAProjectionApplyEachEventOnce(t *testing.T) {
	forEach(t, func(_ *testing.T, f *fixture) {
		f.createSum("view")
		f.sequence()
		config := eventstore.ProjectionConfig{Name: "view", BatchSize: 7, Apply: addTo(f.Table("view"))}
		stop := f.background(f.projection(config).Run)
		f.append("s", eventstore.NoStream, events(0, 50)...)
		f.background(f.projection(config).Run)
		f.waitFor("view", "s", 20)
		stop()
		f.append("s", eventstore.Exactly(50), events(50, 50)...)
		f.waitFor("view", "s", 100)
		f.hasSum("view", 100)
	})
}

// A handler that takes longer than its lease keeps it; without that, another process would apply the same events meanwhile.
func TestAProjectionKeepsItsLeaseWhileApplyTakesItsTime(t *testing.T) {
	forEach(t, func(_ *testing.T, f *fixture) {
		f.createSum("view")
		f.append("s", eventstore.NoStream, events(0, 1)...)
		f.stamp()
		add := addTo(f.Table("view"))
		const lease = 6 * time.Second // so that a busy machine renews it in time
		var calls atomic.Int64
		config := eventstore.ProjectionConfig{Name: "view", LeaseDuration: lease, Apply: func(ctx context.Context, tx *sql.Tx, e eventstore.Event) error {
			if calls.Add(1) == 1 {
				timer := time.NewTimer(lease + lease/2)
				defer timer.Stop()
				<-timer.C
			}
			return add(ctx, tx, e)
		}}
		f.background(f.projection(config).Run)
		f.Eventually(func() bool { return calls.Load() == 1 }, testoutbox.Patience, time.Millisecond)
		f.background(f.projection(config).Run)
		f.waitFor("view", "s", 1)
		f.hasSum("view", 1)
		f.Equal(int64(1), calls.Load())
	})
}

func TestWaitForReturnsWhatAGroupHasPassedAndEndsWithItsContext(t *testing.T) {
	forEach(t, func(_ *testing.T, f *fixture) {
		ctx, cancel := context.WithTimeout(f.ctx(), 30*time.Millisecond)
		defer cancel()
		f.append("s", eventstore.NoStream, events(0, 1)...)
		f.ErrorIs(f.store.WaitFor(ctx, "view", "s", 1), context.DeadlineExceeded)
		f.isField(f.store.WaitFor(f.ctx(), "", "s", 1), "group")
		f.isField(f.store.WaitFor(f.ctx(), "view", "", 1), "Stream")
		f.isField(f.store.WaitFor(f.ctx(), "view", "s", 0), "version")
		err := f.store.WaitFor(f.ctx(), "view ", "s", 1)
		f.isField(err, "group")
		f.ErrorContains(err, "white space at an end", "the reason")
		for field, config := range map[string]eventstore.ProjectionConfig{
			"ProjectionConfig.Apply":         {Name: "view"},
			"ProjectionConfig.Name":          {Apply: addTo("x")},
			"ProjectionConfig.BatchSize":     {Name: "view", BatchSize: -1, Apply: addTo("x")},
			"ProjectionConfig.LeaseDuration": {Name: "view", LeaseDuration: -1, Apply: addTo("x")},
		} {
			_, err := f.store.NewProjection(config)
			f.isField(err, field)
		}
	})
}

const projectVariable = "OUTBOX_TEST_PROJECT"

// A projectJob is a process that projects, and is killed.
type projectJob struct {
	Backend, Driver, DSN, Schema, Table string
	Most                                int // events that it applies; in the last of them it waits to be killed
}

func (j projectJob) run() error {
	db, err := sql.Open(j.Driver, j.DSN)
	if err != nil {
		return err
	}
	store, err := eventstore.New(db, eventstore.Config{Dialect: testoutbox.Dialect(j.Backend), Schema: j.Schema}, nil)
	if err != nil {
		return err
	}
	add, applied := addTo(j.Table), 0
	p, err := store.NewProjection(eventstore.ProjectionConfig{
		Name: "view", BatchSize: 5, LeaseDuration: 200 * time.Millisecond,
		Apply: func(ctx context.Context, tx *sql.Tx, e eventstore.Event) error {
			err := add(ctx, tx, e)
			fmt.Println("applied " + string(e.Payload)) // and not committed yet
			if applied++; applied == j.Most {
				<-ctx.Done()
			}
			return err
		},
	})
	if err != nil {
		return err
	}
	return p.Run(context.Background())
}

func TestLong_AProjectionThatIsKilledAppliesEachEventOnce(t *testing.T) {
	forEach(t, func(_ *testing.T, f *fixture) {
		f.createSum("view")
		kills, n := full("OUTBOX_TEST_EVENTS", 5, 20), 400
		if f.DB.Name == testdb.SQLServer {
			kills = 1
		}
		f.append("s", eventstore.NoStream, events(0, n)...)
		f.stamp()
		for kill := range kills {
			at := 1 + kill*3%11
			job := projectJob{f.DB.Name, f.DB.DriverName, f.DB.DSN, f.DB.Schema, f.Table("view"), at + 8}
			lines := make(chan testprocess.Line, n)
			p := testprocess.Start(f.T, projectVariable, job, lines)
			for range at {
				line, _ := suite.Take(f.T, lines, "an event that is applied")
				f.NotEmpty(line.Text, "the projection has ended: %v", p.State())
			}
			f.NoError(p.Kill()) // somewhere in the next events, or waiting in the last
			for line := range lines {
				if line.Text == "" {
					break
				}
			}
		}
		f.background(f.projection(eventstore.ProjectionConfig{Name: "view", LeaseDuration: time.Second, Apply: addTo(f.Table("view"))}).Run)
		f.waitFor("view", "s", int64(n))
		f.hasSum("view", n)
	})
}
