package publish

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/faults"
	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
)

// A connection that hangs holds up its own batch. Other calls are written on another, however few they are, except on SQLite,
// where that would wait for the same lock.
func TestTrap_ABatchThatHangsHoldsUpNobodyElse(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		var n atomic.Int32
		sent, release := make(chan struct{}), make(chan struct{})
		pool := faults.Open(t, f.DB, faults.Hooks{Before: func(ctx context.Context, s faults.Statement) error {
			if !inserts(s) || n.Add(1) > 1 {
				return nil
			}
			close(sent)
			select {
			case <-release:
			case <-ctx.Done():
			}
			return ctx.Err()
		}})
		hung := f.crowd(f.publisher(pool, every(time.Minute), func(c *outbox.PublisherConfig) { c.FlushMessages = 3 }))
		for i := range 3 { // so that it is worth no second commit that one call waits
			hung.publish(t.Context(), fmt.Sprintf("hung %d", i))
		}
		<-sent
		if f.DB.Name == testdb.SQLite {
			close(release)
		}
		others := f.crowd(hung.p)
		for i := range 3 {
			others.publish(t.Context(), fmt.Sprintf("%d", i), "with", "others")
			others.allSucceed()
		}
		if f.DB.Name != testdb.SQLite {
			f.Len(f.uuids(), 9)
			close(release)
		}
		hung.allSucceed()
		f.Len(f.uuids(), 12)
		f.Equal(int32(4), n.Load())
	})
}

// outages are answers of each database for which no message is to blame, rejections are those for which one is.
var (
	outages = map[string][]*faults.Error{
		testdb.SQLite:    {{Result: 8}, {Result: 10}, {Result: 13}},
		testdb.Postgres:  {{State: "25006"}, {State: "53100"}, {State: "42501"}, {State: "57014"}},
		testdb.SQLServer: {{Number: 3906}, {Number: 1105}, {Number: 229}},
	}
	rejections = map[string][]*faults.Error{
		testdb.SQLite:    {{Result: 275}, {Result: 18}},
		testdb.Postgres:  {{State: "22021"}, {State: "23514"}, {State: "54000"}},
		testdb.SQLServer: {{Number: 547}, {Number: 8152}},
	}
)

// refused has a batch of 20 calls written, of whose inserts the first few are refused, and returns the calls' errors.
func (f *fixture) refused(err error, inserts int32) (errs []error, inserted int32) {
	g := f.gate()
	g.fault = func(n int32) faults.Fault {
		if n <= inserts {
			return faults.Fault{Kind: faults.Refuse, Err: err}
		}
		return faults.Fault{}
	}
	c := f.crowd(f.publisher(g.DB, batch))
	ahead := c.behind(g)
	for i := range 20 {
		c.publish(f.T.Context(), fmt.Sprint(i))
	}
	f.waits(c.p, 20)
	g.open()
	for uuid, err := range c.end() {
		if slices.Contains(ahead, uuid) {
			f.NoError(err)
		} else {
			errs = append(errs, err)
		}
	}
	return errs, g.inserts.Load()
}

func TestTrap_ABatchIsHalvedOnlyIfAMessageIsToBlame(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		for _, outage := range outages[f.DB.Name] {
			errs, inserted := f.refused(outage, 1000)
			tries := int32(1)
			if outage.State == "25006" || outage.Number == 3906 { // a standby: other connections may lead elsewhere
				tries = 4
			}
			f.Equal(tries, inserted, "%v", outage)
			for _, err := range errs {
				f.ErrorIs(err, outage)
				f.NotErrorIs(err, outbox.ErrUnknownOutcome)
			}
		}
		for _, rejection := range rejections[f.DB.Name] {
			errs, inserted := f.refused(rejection, 2)
			f.Equal(int32(5), inserted, "the whole, a half, two quarters, a half; %v", rejection)
			for _, err := range errs {
				f.NoError(err)
			}
		}
	})
}

// hanging returns a pool whose first inserts, as many as can be under way at a time, are sent and never answered, and a channel
// that has a value for each.
func (f *fixture) hanging() (pool *sql.DB, sent chan struct{}, writers int) {
	writers = 2
	if f.DB.Name == testdb.SQLite {
		writers = 1
	}
	var n atomic.Int32
	sent = make(chan struct{}, writers)
	return faults.Open(f.T, f.DB, faults.Hooks{Fault: func(_ context.Context, s faults.Statement) faults.Fault {
		if !inserts(s) || n.Add(1) > int32(writers) { //nolint:gosec // it is 1 or 2
			return faults.Fault{}
		}
		sent <- struct{}{}
		return faults.Fault{Kind: faults.Hang, For: time.Hour}
	}}), sent, writers
}

// While the database says nothing to any writer, a call leaves when its context ends or Close gives up, and is told whether its
// messages were sent.
func TestTrap_WhileEveryBatchHangs(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		pool, sent, writers := f.hanging()
		p, err := outbox.NewPublisher(pool, f.config(batch, func(c *outbox.PublisherConfig) { c.CloseTimeout = 50 * time.Millisecond }), nil)
		f.NoError(err)
		limited, end := context.WithCancelCause(t.Context())
		calls := f.crowd(p)
		for i := range writers {
			calls.publish(limited, fmt.Sprintf("sent %d", i))
			<-sent
		}
		calls.publish(limited, "waits")
		f.waits(p, 1)
		patient := f.crowd(p)
		patient.inLine(1, "patient")

		end(errBoom)
		for uuid, err := range calls.end() {
			f.ErrorIs(err, context.Canceled, uuid)
			f.Equal(uuid != "waits", errors.Is(err, outbox.ErrUnknownOutcome), "%s: %v", uuid, err)
		}
		f.ErrorContains(p.Close(), fmt.Sprintf("Close gave up 1 calls that were not sent and %d whose outcome is unknown", writers))
		f.ErrorIs(patient.end()["patient"], outbox.ErrClosed)
		f.NotErrorIs(patient.errs["patient"], outbox.ErrUnknownOutcome)
		f.Eventually(func() bool { return pool.Stats().InUse == 0 }, testoutbox.Patience, time.Millisecond, "Close ends what hangs")
		f.Empty(f.uuids())
	})
}

// Calls whose contexts never end are answered all the same: those that were sent after half a minute, and then those that wait
// are written on other connections.
func TestLong_WhileEveryBatchHangsForItsTime(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		pool, sent, writers := f.hanging()
		calls := f.crowd(f.publisher(pool, batch))
		began := time.Now()
		for i := range writers {
			calls.publish(t.Context(), fmt.Sprintf("sent %d", i))
			<-sent
		}
		calls.publish(t.Context(), "waits")
		for uuid, err := range calls.end() {
			if uuid == "waits" {
				f.NoError(err)
				continue
			}
			f.ErrorIs(err, outbox.ErrUnknownOutcome)
			f.ErrorContains(err, "the database did not answer within 30s")
		}
		f.Less(time.Since(began), 45*time.Second)
		f.Equal([]string{"waits"}, f.uuids())
	})
}
