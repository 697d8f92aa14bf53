package fanout_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/fanout"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
)

// rewind sets a policy's cursor back, as if its dispatcher had died between a publish and its commit.
func (f *fixture) rewind(policy string) {
	f.T.Helper()
	f.Equal(1, f.Exec("UPDATE %s SET {position} = 0 WHERE {group_name} = 'fanout:%s'", f.LogTable("group"), policy))
}

// What arrives elsewhere has an id that is the same when it comes again, and another for each policy and destination.
// Another outbox takes it once.
func TestFanout_IdsElsewhereAreDeterministic(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		other := suite.New(t, f.DB, "Second")
		other.Migrate()
		f.Sequencer()
		ids := make([]string, 0, 2)
		for _, m := range []outbox.Message{
			{UUID: "a", Topic: "orders", Payload: []byte{0, 1}, Headers: map[string]string{"h": "v"}, CorrelationID: "cause", StreamKey: "stream"},
			{UUID: "b", Topic: "orders", DueAt: f.Now().Add(time.Hour)},
		} {
			id, err := f.LogOutbox().Enqueue(f.Context(), f.DB.DB, m)
			f.NoError(err)
			ids = append(ids, id[0].String())
		}
		one, two := suite.NewRecorder(), suite.NewRecorder()
		policies := []fanout.Policy{
			{Name: "p", Destinations: []fanout.Destination{
				fanout.ToPublisher("one", one, "x"), fanout.ToPublisher("two", two, "x"), fanout.ToStore("store", other.Outbox, "copy")}},
			{Name: "q", Destinations: []fanout.Destination{fanout.ToPublisher("one", two, "y"), fanout.ToStore("store", other.Outbox, "copy")}},
		}
		for range 2 {
			stop := f.Dispatch(nil, policies)
			f.HasPassed("p", 2)
			f.HasPassed("q", 2)
			stop()
			f.rewind("p")
		}
		f.Equal([]string{"a", "b", "a", "b"}, one.UUIDs())
		f.Len(two.UUIDs(), 6)
		known := map[string]string{} // by id
		for i, msg := range append(one.Taken(), two.Taken()...) {
			id := msg.Metadata[outbox.HeaderMessageID]
			name := msg.UUID + msg.Metadata[fanout.HeaderPolicy]
			if i < 4 {
				name += " one"
			}
			if before, again := known[id]; again {
				f.Equal(before, name)
			}
			known[id] = name
			f.Contains(ids, msg.Metadata[fanout.HeaderSource])
		}
		f.Len(known, 6)
		first := one.Taken()[0]
		f.Equal(message.Payload{0, 1}, first.Payload)
		for key, want := range map[string]string{"h": "v", "correlation_id": "cause", outbox.HeaderStreamKey: "stream", fanout.HeaderTopic: "orders"} {
			f.Equal(want, first.Metadata[key], key)
		}
		copies := other.UUIDsOf("copy")
		slices.Sort(copies) // the policies do not wait for each other
		f.Equal([]string{"a", "a", "b", "b"}, copies, "each policy's copies once")
		f.Len(other.Claim("copy"), 2, "the others are not due yet")
	})
}

// A destination that cannot be reached holds up its policy, and no other; then nothing is missing, and those that could be
// reached have nothing twice.
func TestFanout_OutagesElsewhere(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		other := suite.New(t, f.DB, "Second") // where nothing is installed yet
		f.Sequencer()
		broken, works := suite.NewRecorder(), suite.NewRecorder()
		broken.Fail(suite.ErrBoom)
		book := suite.NewLogBook()
		var mu sync.Mutex
		var events []fanout.DispatchEvent
		f.Dispatch(book, []fanout.Policy{
			{Name: "broken", Destinations: []fanout.Destination{
				fanout.ToPublisher("broken", broken, "x"), fanout.ToPublisher("works", works, "x"), fanout.ToTopic("copy")}},
			{Name: "store", Destinations: []fanout.Destination{fanout.ToStore("store", other.Outbox, "copy")}},
			suite.ToTopics("other", "other copy"),
		}, func(c *fanout.Config) {
			c.BatchSize = 10
			c.OnDispatch = func(e fanout.DispatchEvent) {
				mu.Lock()
				defer mu.Unlock()
				events = append(events, e)
			}
		})
		f.LogN("orders", 0, 30)
		f.HasPassed("other", 30)
		f.Has(broken, 30) // several tries
		f.Eventually(func() bool { return len(book.At("ERROR", "A policy waits")) == 2 }, suite.Patience, 2*time.Millisecond)
		for _, line := range book.At("ERROR", "A policy waits") {
			if line.Fields["policy"] == "broken" {
				f.ErrorIs(line.Err, suite.ErrBoom)
				f.ErrorContains(line.Err, `send to "broken"`)
			} else {
				f.ErrorContains(line.Err, `send to "store"`)
			}
		}
		f.Zero(f.Passed("broken"))
		f.Zero(f.Passed("store"))
		f.Empty(f.UUIDsOf("copy"))

		broken.Fail(nil)
		other.Migrate()
		f.HasPassed("broken", 30)
		f.HasPassed("store", 30)
		f.Equal(suite.Numbered(0, 30), f.UUIDsOf("copy"))
		f.Equal(suite.Numbered(0, 30), other.UUIDsOf("copy"))
		f.Equal(suite.Numbered(0, 30), works.UUIDs())
		f.Subset(broken.UUIDs(), suite.Numbered(0, 30))
		f.Await(book, "INFO", "A policy continues")

		mu.Lock()
		defer mu.Unlock()
		matched, failed := map[string]int{}, 0
		for _, e := range events {
			if e.Err != nil {
				failed++
				continue
			}
			f.LessOrEqual(e.Read, 10)
			f.Positive(e.Position)
			matched[e.Policy] += e.Matched
		}
		f.Positive(failed)
		f.Equal(map[string]int{"broken": 30, "store": 30, "other": 30}, matched)
	})
}

// A hangingPublisher publishes nothing before it is let go, or its message's context ends.
type hangingPublisher struct {
	entered chan struct{}
	let     chan struct{}
}

func (p *hangingPublisher) Publish(_ string, messages ...*message.Message) error {
	p.entered <- struct{}{}
	select {
	case <-p.let:
		return nil
	case <-messages[0].Context().Done():
		return messages[0].Context().Err()
	}
}

func (p *hangingPublisher) Close() error { return nil }

// The lease is kept while a publisher takes its time, and no lock is held.
func TestFanout_ASlowPublisherKeepsTheLease(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		f.Sequencer()
		slow := &hangingPublisher{make(chan struct{}, 1), make(chan struct{})}
		policy := suite.ToTopics("p", "copy")
		policy.Destinations = append(policy.Destinations, fanout.ToPublisher("slow", slow, "x"))
		lease := func(c *fanout.Config) { c.LeaseDuration, c.DrainTimeout = 3*time.Second, time.Millisecond }
		stop := f.Dispatch(nil, []fanout.Policy{policy}, lease)
		f.LogN("orders", 0, 1)
		suite.Take(f.T, slow.entered, "the publisher")
		until := func() int64 {
			return f.Number("SELECT %s FROM %s WHERE {group_name} = 'fanout:p'", f.Millis("locked_until"), f.LogTable("group"))
		}
		first := until()
		f.Eventually(func() bool { return until() >= first+1000 }, suite.Patience, 20*time.Millisecond)
		f.Zero(f.Passed("p"))
		stop() // ends the context of the message
		f.Zero(f.Passed("p"))
		f.Empty(f.UUIDsOf("copy"))

		f.Dispatch(nil, []fanout.Policy{policy}, lease)
		suite.Take(f.T, slow.entered, "the publisher")
		close(slow.let)
		f.HasPassed("p", 1)
		f.Equal([]string{"0"}, f.UUIDsOf("copy"))
	})
}
