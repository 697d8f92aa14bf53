// Package eventstore_test tests package eventstore on each database. The names of the tests say what other event stores get
// wrong.
package eventstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/eventstore"
	"github.com/incursa/watermill-outbox/internal/seam"
	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
)

// A fixture is an event store and a table of its projections.
type fixture struct {
	*testoutbox.Outbox
	store     *eventstore.Store
	sequencer *outbox.Sequencer
}

func forEach(t *testing.T, test func(t *testing.T, f *fixture)) {
	t.Helper()
	testoutbox.ForEach(t, func(t *testing.T, o *testoutbox.Outbox) {
		f := &fixture{Outbox: o}
		f.store = f.open(o.DB)
		var err error
		f.sequencer, err = outbox.NewSequencer(o.DB.DB, outbox.SequencerConfig{
			Dialect: testoutbox.Dialect(o.DB.Name), Schema: o.DB.Schema, PollInterval: time.Millisecond, MaxPollInterval: 5 * time.Millisecond}, nil)
		f.NoError(err)
		test(t, f)
	})
}

func (f *fixture) open(db *testdb.DB) *eventstore.Store {
	f.T.Helper()
	s, err := eventstore.New(db.DB, eventstore.Config{Dialect: testoutbox.Dialect(db.Name), Schema: db.Schema}, nil)
	f.NoError(err)
	return s
}

func (f *fixture) ctx() context.Context { return f.T.Context() }

// events are n of the type "counted", with the payloads from, from + 1 …
func events(from, n int) []eventstore.Event {
	list := make([]eventstore.Event, n)
	for i := range list {
		list[i] = eventstore.Event{Type: "counted", Payload: fmt.Append(nil, from+i)}
	}
	return list
}

// named are the same, with ids.
func (f *fixture) named(from, n int) []eventstore.Event {
	f.T.Helper()
	list := events(from, n)
	for i := range list {
		var err error
		list[i].ID, err = f.NewID()
		f.NoError(err)
	}
	return list
}

// isField asserts that err names the field as what is wrong.
func (f *fixture) isField(err error, field string) {
	f.T.Helper()
	var bad *outbox.FieldError
	f.ErrorAs(err, &bad)
	f.Equal(field, bad.Field)
}

func (f *fixture) append(stream string, expected eventstore.Expected, list ...eventstore.Event) eventstore.Appended {
	f.T.Helper()
	done, err := f.store.Append(f.ctx(), nil, stream, expected, list...)
	f.NoError(err)
	return done
}

// stamp gives all committed events their positions.
func (f *fixture) stamp() {
	f.T.Helper()
	for {
		n, err := seam.Sequencer(f.sequencer).Stamp(f.ctx())
		f.NoError(err)
		if n == 0 {
			return
		}
	}
}

// sequence stamps until the test ends.
func (f *fixture) sequence() {
	f.T.Helper()
	f.background(f.sequencer.Run)
}

// background runs something until the test ends or stop is called.
func (f *fixture) background(run func(context.Context) error) (stop func()) {
	f.T.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(f.ctx()))
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			f.T.Errorf("in the background: %v", err)
		}
	})
	f.T.Cleanup(stop)
	return stop
}

// read returns the payloads of a stream.
func (f *fixture) read(stream string, params eventstore.ReadParams) []string {
	f.T.Helper()
	list, err := payloads(f.store.Read(f.ctx(), nil, stream, params))
	f.NoError(err)
	return list
}

func (f *fixture) readAll(params eventstore.ReadAllParams) []string {
	f.T.Helper()
	list, err := payloads(f.store.ReadAll(f.ctx(), params))
	f.NoError(err)
	return list
}

func payloads(seq func(func(eventstore.Event, error) bool)) (list []string, err error) {
	for e, err := range seq {
		if err != nil {
			return list, err
		}
		list = append(list, string(e.Payload))
	}
	return list, nil
}

// numbers are the texts of from, from + 1 …
func numbers(from, n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprint(from + i)
	}
	return list
}

// isGapless asserts that a stream has the versions 1 to n, and that Seq and position follow them.
func (f *fixture) isGapless(stream string, n int) {
	f.T.Helper()
	version := int64(0)
	for e, err := range f.store.Read(f.ctx(), nil, stream, eventstore.ReadParams{}) {
		f.NoError(err)
		version++
		f.Equal(version, e.Version, "the stream %s has a gap", stream)
	}
	f.Equal(int64(n), version, "the stream %s has another length", stream)
}

// begin begins a transaction that is rolled back with the test.
func (f *fixture) begin() *sql.Tx {
	f.T.Helper()
	tx, err := f.DB.BeginTx(context.WithoutCancel(f.ctx()), nil)
	f.NoError(err)
	f.T.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// written reports how many rows the outbox has in a table, such as "event".
func (f *fixture) rows(table string) int {
	f.T.Helper()
	return f.Number("SELECT COUNT(*) FROM %s", f.part(table))
}

func (f *fixture) part(name string) string {
	return f.Table(testdb.Part(f.DB.Name, testoutbox.Dialect(f.DB.Name).Traits().Table, name))
}

// isNothing asserts that nothing at all was written.
func (f *fixture) isNothing() {
	f.T.Helper()
	for _, table := range []string{"", "event", "event_stream", "log_pending", "log"} {
		f.Zero(f.rows(table), table)
	}
}

// usable asserts that a transaction can still write and commit.
func (f *fixture) usable(tx *sql.Tx) {
	f.T.Helper()
	_, err := f.Outbox.Outbox.Enqueue(f.ctx(), tx, outbox.Message{Topic: "after"})
	f.NoError(err)
	f.NoError(tx.Commit())
}

// full says whether tests run at the size of the requirement.
func full(variable string, small, large int) int {
	if fullSize(variable) {
		return large
	}
	return small
}

func isConflict(err error) bool {
	var conflict *eventstore.VersionError
	return errors.As(err, &conflict) && errors.Is(err, eventstore.ErrVersionConflict)
}

func reversed(list []string) []string {
	list = slices.Clone(list)
	slices.Reverse(list)
	return list
}

// A group runs functions at once.
type group struct {
	running sync.WaitGroup
	mu      sync.Mutex
	errs    []error
}

func (g *group) Go(f func() error) {
	g.running.Go(func() {
		if err := f(); err != nil {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.errs = append(g.errs, err)
		}
	})
}

func (g *group) Wait() error {
	g.running.Wait()
	return errors.Join(g.errs...)
}
