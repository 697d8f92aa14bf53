package eventstore_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/eventstore"
	"github.com/incursa/watermill-outbox/internal/seam"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
)

func TestAnArchivedStreamTakesNoEventsAndIsReadOnlyOnRequest(t *testing.T) {
	forEach(t, func(_ *testing.T, f *fixture) {
		f.append("s", eventstore.NoStream, events(1, 3)...)
		f.ErrorIs(f.store.Archive(f.ctx(), nil, "s", eventstore.Exactly(2)), eventstore.ErrVersionConflict)
		f.ErrorIs(f.store.Archive(f.ctx(), nil, "none", eventstore.Any), eventstore.ErrVersionConflict)
		f.NoError(f.store.Archive(f.ctx(), nil, "s", eventstore.Exactly(3)))
		for _, expected := range []eventstore.Expected{eventstore.Any, eventstore.NoStream, eventstore.Exactly(3), eventstore.StreamExists} {
			tx := f.begin()
			_, err := f.store.Append(f.ctx(), tx, "s", expected, events(4, 1)...)
			f.ErrorIs(err, eventstore.ErrArchived)
			f.usable(tx)
		}
		_, err := payloads(f.store.Read(f.ctx(), nil, "s", eventstore.ReadParams{}))
		f.ErrorIs(err, eventstore.ErrArchived)
		f.Equal(numbers(1, 3), f.read("s", eventstore.ReadParams{Archived: true}))
		f.stamp()
		f.Equal(numbers(1, 3), f.readAll(eventstore.ReadAllParams{}), "the log keeps them")
		f.NoError(f.store.Restore(f.ctx(), nil, "s"))
		f.Equal(eventstore.Appended{First: 4, Last: 4}, f.append("s", eventstore.Exactly(3), events(4, 1)...))
		f.ErrorIs(f.store.Restore(f.ctx(), nil, "none"), eventstore.ErrVersionConflict)
		f.ErrorContains(f.store.Archive(f.ctx(), nil, "s", eventstore.NoStream), "Expected")
	})
}

// A stream that comes back after it was deleted must not give a version twice: a writer that slept would overwrite nothing, but
// believe that it has seen everything.
func TestADeletedStreamCountsAsNoneAndGoesOnWithItsVersions(t *testing.T) {
	forEach(t, func(_ *testing.T, f *fixture) {
		f.append("s", eventstore.NoStream, events(1, 3)...)
		f.NoError(f.store.Delete(f.ctx(), nil, "s", eventstore.StreamExists))
		f.Empty(f.read("s", eventstore.ReadParams{}))
		for _, expected := range []eventstore.Expected{eventstore.Exactly(3), eventstore.StreamExists} {
			_, err := f.store.Append(f.ctx(), nil, "s", expected, events(4, 1)...)
			var conflict *eventstore.VersionError
			f.ErrorAs(err, &conflict)
			f.Zero(conflict.Actual)
		}
		f.Equal(eventstore.Appended{First: 4, Last: 4}, f.append("s", eventstore.NoStream, events(4, 1)...))
		f.Equal(numbers(4, 1), f.read("s", eventstore.ReadParams{}))
		f.Equal(numbers(4, 1), f.read("s", eventstore.ReadParams{Backwards: true}))
		f.NoError(f.store.Restore(f.ctx(), nil, "s"))
		f.Equal(numbers(1, 4), f.read("s", eventstore.ReadParams{}))
	})
}

func TestPurgeWaitsForEveryConsumerGroup(t *testing.T) {
	forEach(t, func(_ *testing.T, f *fixture) {
		f.append("s", eventstore.NoStream, events(1, 3)...)
		f.append("t", eventstore.NoStream, events(7, 1)...)
		n, err := f.store.Purge(f.ctx(), "s")
		f.NoError(err)
		f.Zero(n, "nothing is to be purged")
		f.NoError(f.store.Delete(f.ctx(), nil, "s", eventstore.Exactly(3)))
		n, err = f.store.Purge(f.ctx(), "s")
		f.ErrorIs(err, eventstore.ErrNotPassed, "they have no positions yet")
		f.Zero(n)
		f.stamp()

		seen := make(chan int64, 10)
		wait := make(chan struct{})
		projection := f.projection(eventstore.ProjectionConfig{Name: "slow", BatchSize: 1, Apply: func(ctx context.Context, _ *sql.Tx, e eventstore.Event) error {
			if e.Position == 3 {
				select {
				case <-wait:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			return nil
		}, OnLive: func(position int64) { seen <- position }})
		stop := f.background(projection.Run)
		f.waitFor("slow", "s", 2)
		if f.DB.Name != "sqlite" { // where the open transaction of the projection holds up all others
			n, err = f.store.Purge(f.ctx(), "s")
			f.ErrorIs(err, eventstore.ErrNotPassed)
			f.Equal(2, n)
		}
		close(wait)
		f.Equal(int64(4), <-seen)
		stop()
		_, err = f.store.Purge(f.ctx(), "s")
		f.NoError(err)
		f.Equal(numbers(7, 1), f.readAll(eventstore.ReadAllParams{}))
		f.Equal(1, f.rows("event"))
		f.Equal(1, f.rows(""))
		f.Equal(1, f.rows("log"))
		f.NoError(f.store.Restore(f.ctx(), nil, "s"))
		f.Empty(f.read("s", eventstore.ReadParams{}), "what was purged is gone")
		f.Equal(eventstore.Appended{First: 4, Last: 4}, f.append("s", eventstore.NoStream, events(4, 1)...))

		f.NoError(f.store.Archive(f.ctx(), nil, "t", eventstore.Any))
		n, err = f.store.Purge(f.ctx(), "t")
		f.NoError(err)
		f.Equal(1, n)
		_, err = f.store.Append(f.ctx(), nil, "t", eventstore.Any, events(1, 1)...)
		f.ErrorIs(err, eventstore.ErrArchived)
		_, err = f.store.Purge(f.ctx(), "none")
		f.NoError(err)
	})
}

// Whoever purges the log after a week would purge the events with it.
func TestPurgingTheLogAndTheQueueLeavesEvents(t *testing.T) {
	forEach(t, func(_ *testing.T, f *fixture) {
		log, err := outbox.New(f.DB.DB, outbox.Config{Dialect: testoutbox.Dialect(f.DB.Name), Schema: f.DB.Schema, Log: outbox.LogOnly}, nil)
		f.NoError(err)
		noise := func(n int) {
			for range n {
				_, err := log.Enqueue(f.ctx(), f.DB.DB, outbox.Message{Topic: "noise"})
				f.NoError(err)
			}
		}
		purge := func() int {
			purged, err := f.PurgeOnce(f.ctx(), outbox.JanitorConfig{Log: time.Nanosecond, Done: time.Nanosecond})
			f.NoError(err)
			return purged["log"]
		}
		f.append("s", eventstore.NoStream, events(1, 3)...)
		noise(2)
		f.append("s", eventstore.Exactly(3), events(4, 2)...)
		f.publish(outbox.QueueOnly, "s", "6")
		noise(1)
		f.append("s", eventstore.Any, events(7, 1)...)
		f.stamp()
		f.Exec("UPDATE %s SET {logged_at} = {logged_at}", f.part("log"))
		f.Eventually(func() bool { return purge()+f.rows("log") <= 7 && f.rows("log") == 7 }, testoutbox.Patience, time.Millisecond, "the others are not purged")
		f.Equal(numbers(1, 7), f.read("s", eventstore.ReadParams{}))
		f.Equal(numbers(1, 7), f.readAll(eventstore.ReadAllParams{}))
		f.Equal(10, f.Number("SELECT {position} FROM %s", f.part("event_swept")), "the next round begins after the events")

		noise(1)
		f.stamp()
		f.Eventually(func() bool { return purge() > 0 }, testoutbox.Patience, time.Millisecond, "what comes later is not purged")
		f.Equal(numbers(1, 7), f.readAll(eventstore.ReadAllParams{}))
	})
}

// The janitor's call over a log that begins with millions of events would be cut off at its time limit each time, and get nowhere.
func TestPurgingTheLogPassesSomeEventsAtATime(t *testing.T) {
	forEach(t, func(_ *testing.T, f *fixture) {
		const passed = 100 // for each message that a call may look at
		f.append("s", eventstore.NoStream, events(1, 2*passed+1)...)
		f.stamp()
		purge := func(limit int) int {
			arg := map[string]int{"limit": limit, "older_than_ms": 0}
			f.NoError(seam.Outbox(f.Outbox.Outbox).Run(f.ctx(), f.DB.DB, "outbox_log_purge", arg, func(*sql.Rows) error { return nil }))
			return f.Number("SELECT {position} FROM %s", f.part("event_swept"))
		}
		f.Equal(passed, purge(1))
		f.Equal(2*passed, purge(1))
		f.Equal(2*passed+1, purge(2))
		f.Equal(2*passed+1, f.rows("log"))
	})
}

// publish sends messages as events of a stream.
func (f *fixture) publish(mode outbox.LogMode, stream string, list ...string) {
	f.T.Helper()
	messages := make([]*message.Message, len(list))
	for i := range list {
		messages[i] = message.NewMessage("uuid "+list[i], []byte(list[i]))
	}
	f.NoError(f.publisher(mode, func(string, *message.Message) string { return stream }).Publish("published", messages...))
}

func (f *fixture) publisher(mode outbox.LogMode, stream func(string, *message.Message) string) *outbox.Publisher {
	f.T.Helper()
	p, err := outbox.NewPublisher(f.DB.DB, outbox.PublisherConfig{
		Dialect: testoutbox.Dialect(f.DB.Name), Schema: f.DB.Schema, Log: mode, EventStream: stream}, nil)
	f.NoError(err)
	return p
}

// What is an event is said by a flag, not by the ending of a name.
func TestAPublisherStoresMarkedMessagesAsEvents(t *testing.T) {
	forEach(t, func(_ *testing.T, f *fixture) {
		marked := func(_ string, msg *message.Message) string { return msg.Metadata["stream"] }
		msg := func(payload, stream string) *message.Message {
			m := message.NewMessage("uuid "+payload, []byte(payload))
			m.Metadata.Set("stream", stream)
			m.Metadata.Set("name", "OrderPlacedEvent")
			return m
		}
		p := f.publisher(outbox.QueueOnly, marked)
		f.NoError(p.Publish("orders", msg("1", "b"), msg("2", ""), msg("3", "a"), msg("4", "b")))
		f.NoError(p.Publish("orders", msg("5", "b")))
		f.NoError(p.Publish("orders", msg("6", "")))
		f.Equal(6, f.Count(outbox.Ready), "each is queued")
		f.Equal([]string{"1", "4", "5"}, f.read("b", eventstore.ReadParams{}))
		f.Equal([]string{"3"}, f.read("a", eventstore.ReadParams{}))
		f.Equal(4, f.rows("event"))

		f.NoError(f.publisher(outbox.LogOnly, marked).Publish("orders", msg("7", "b")))
		f.Equal(6, f.Count(outbox.Ready))
		f.isGapless("b", 4)
		f.stamp()
		for e, err := range f.store.ReadAll(f.ctx(), eventstore.ReadAllParams{}) {
			f.NoError(err)
			f.Equal("OrderPlacedEvent", e.Type)
			f.Equal("orders", e.Topic)
			f.Equal("uuid "+string(e.Payload), e.Message().UUID)
		}

		away := errors.New("away")
		f.ErrorIs(outbox.InTx(f.ctx(), f.DB.DB, func(ctx context.Context, _ *sql.Tx) error {
			m := msg("8", "b")
			m.SetContext(ctx)
			f.NoError(p.Publish("orders", m))
			return away
		}), away)
		f.isGapless("b", 4)

		f.NoError(f.store.Archive(f.ctx(), nil, "b", eventstore.Any))
		f.ErrorIs(p.Publish("orders", msg("9", ""), msg("10", "b")), eventstore.ErrArchived)
		f.Equal(6, f.Count(outbox.Ready), "nothing of the call was written")
	})
}

// The subscriber works on what was published as an event like on any message.
func TestAPublishedEventIsDeliveredByTheQueueToo(t *testing.T) {
	forEach(t, func(_ *testing.T, f *fixture) {
		f.publish(outbox.QueueAndLog, "s", "1", "2")
		subscriber, err := outbox.NewSubscriber(f.DB.DB, f.Subscriber(), nil)
		f.NoError(err)
		defer func() { f.NoError(subscriber.Close()) }()
		messages, err := subscriber.Subscribe(f.ctx(), "published")
		f.NoError(err)
		versions := map[string]string{}
		for range 2 {
			msg := <-messages
			versions[string(msg.Payload)] = msg.Metadata[eventstore.HeaderVersion]
			msg.Ack()
		}
		f.Equal(map[string]string{"1": "1", "2": "2"}, versions)
		f.Becomes(outbox.Done, 2)
	})
}
