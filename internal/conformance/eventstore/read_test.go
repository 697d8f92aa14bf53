package eventstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/eventstore"
	"github.com/incursa/watermill-outbox/internal/conformance/suite"
	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/internal/testoutbox"
)

// A countedTx counts the statements that it is sent.
type countedTx struct {
	*sql.Tx
	sent int
}

func (c *countedTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	c.sent++
	return c.Tx.ExecContext(ctx, query, args...)
}

func (c *countedTx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	c.sent++
	return c.Tx.QueryContext(ctx, query, args...)
}

func TestAStreamOfAThousandIsReadInOneRoundTrip(t *testing.T) {
	forEach(t, func(_ *testing.T, f *fixture) {
		f.append("s", eventstore.NoStream, events(1, 1000)...)
		tx, err := f.DB.BeginTx(f.ctx(), nil)
		f.NoError(err)
		defer func() { _ = tx.Rollback() }()
		counted := &countedTx{Tx: tx}
		list, err := payloads(f.store.Read(f.ctx(), counted, "s", eventstore.ReadParams{}))
		f.NoError(err)
		f.Equal(numbers(1, 1000), list)
		f.Equal(1, counted.sent)
	})
}

func TestReadGoesForwardsAndBackwardsFromAVersion(t *testing.T) {
	forEach(t, func(_ *testing.T, f *fixture) {
		f.append("s", eventstore.NoStream, events(1, 2500)...)
		all := numbers(1, 2500)
		for _, c := range []struct {
			params eventstore.ReadParams
			want   []string
		}{
			{eventstore.ReadParams{}, all},
			{eventstore.ReadParams{From: 2499}, all[2498:]},
			{eventstore.ReadParams{From: 2501}, nil},
			{eventstore.ReadParams{From: 3, Limit: 2}, all[2:4]},
			{eventstore.ReadParams{Limit: 1001}, all[:1001]},
			{eventstore.ReadParams{Backwards: true}, reversed(all)},
			{eventstore.ReadParams{Backwards: true, From: 2}, []string{"2", "1"}},
			{eventstore.ReadParams{Backwards: true, Limit: 1}, []string{"2500"}},
		} {
			f.Equal(c.want, f.read("s", c.params), "%+v", c.params)
		}
		f.Empty(f.read("none", eventstore.ReadParams{}))
		_, err := payloads(f.store.Read(f.ctx(), nil, "s", eventstore.ReadParams{From: -1}))
		f.ErrorContains(err, "ReadParams.From")
		_, err = payloads(f.store.Read(f.ctx(), nil, "", eventstore.ReadParams{}))
		f.ErrorContains(err, "Stream")
	})
}

// Large events are fetched a few at a time, or a stream would not fit into memory.
func TestAPageIsLimitedInBytes(t *testing.T) {
	forEach(t, func(_ *testing.T, f *fixture) {
		big := strings.Repeat("x", 3<<20)
		var list []eventstore.Event
		for i := range 5 {
			list = append(list, eventstore.Event{Type: "big", Payload: fmt.Append(nil, i, big)})
		}
		list = append(list, eventstore.Event{Type: "bigger", Payload: []byte(strings.Repeat("y", 9<<20))}, eventstore.Event{Payload: []byte("small")})
		f.append("s", eventstore.NoStream, list...)
		f.stamp()
		for _, all := range [][]string{f.read("s", eventstore.ReadParams{}), f.readAll(eventstore.ReadAllParams{}),
			reversed(f.read("s", eventstore.ReadParams{Backwards: true}))} {
			f.Len(all, len(list))
			for i := range all {
				f.Equal(len(list[i].Payload), len(all[i]))
				f.Equal(string(list[i].Payload[:1]), all[i][:1])
			}
		}
	})
}

// Rows that are left open hold their connection for ever.
func TestAReadAbandonedHalfWayLeaksNoConnection(t *testing.T) {
	forEach(t, func(_ *testing.T, f *fixture) {
		f.append("s", eventstore.NoStream, events(1, 30)...)
		f.stamp()
		f.DB.SetMaxOpenConns(1)
		for range 5 {
			for e, err := range f.store.Read(f.ctx(), nil, "s", eventstore.ReadParams{}) {
				f.NoError(err)
				f.Equal(0, f.DB.Stats().InUse, "a connection is held while the loop runs")
				f.append("other", eventstore.Any, eventstore.Event{Payload: e.Payload}) // on the only connection
				break
			}
			for _, err := range f.store.ReadAll(f.ctx(), eventstore.ReadAllParams{Follow: true}) {
				f.NoError(err)
				break
			}
		}
		f.Equal(0, f.DB.Stats().InUse)
		ctx, cancel := context.WithCancel(f.ctx())
		cancel()
		_, err := payloads(f.store.Read(ctx, nil, "s", eventstore.ReadParams{}))
		f.ErrorIs(err, context.Canceled)
	})
}

func TestAnEventComesBackAsItWasAppended(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		suite.Need(t, f.DB, suite.UnescapesJSON)
		id, err := f.NewID()
		f.NoError(err)
		want := eventstore.Event{
			ID: id, Type: "placed \u00e9 \"quoted\" \U0001F642", Topic: "orders", Payload: []byte{0, 1, 0xff}, CorrelationID: "request 1", CausationID: "command 2",
			Metadata: map[string]string{"tenant": "x\x00y", "": "empty", "\\": "{}"},
		}
		f.append(`order "7" \u`, eventstore.NoStream, want, eventstore.Event{Payload: nil})
		f.stamp()
		var got []eventstore.Event
		for e, err := range f.store.ReadAll(f.ctx(), eventstore.ReadAllParams{}) {
			f.NoError(err)
			got = append(got, e)
		}
		f.Len(got, 2)
		f.Equal("events", got[1].Topic)
		f.NotZero(got[1].ID)
		f.Nil(got[1].Metadata)
		f.WithinDuration(time.Now(), got[0].StoredAt, time.Hour)
		msg := got[0].Message()
		f.Equal(message.Metadata{
			"tenant": "x\x00y", "": "empty", "\\": "{}", eventstore.HeaderType: want.Type, "correlation_id": "request 1", eventstore.HeaderCausation: "command 2",
			eventstore.HeaderStream: `order "7" \u`, eventstore.HeaderVersion: "1", eventstore.HeaderPosition: "1", outbox.HeaderMessageID: id.String(),
		}, msg.Metadata)
		f.Equal(id.String(), msg.UUID)

		again := got[0]
		f.append("copy", eventstore.NoStream, eventstore.Event{Type: again.Type, Metadata: msg.Metadata, Payload: again.Payload})
		for e, err := range f.store.Read(f.ctx(), nil, "copy", eventstore.ReadParams{}) {
			f.NoError(err)
			f.Equal("copy", e.Stream)
			f.Equal(int64(1), e.Version)
			f.Equal("request 1", e.CorrelationID)
		}
	})
}

// Marten's and SqlStreamStore's readers go by a number that is given at insert, and miss what commits late.
func TestAReaderSeesExactlyWhatIsCommittedWhileANaiveCursorMissesEvents(t *testing.T) {
	forEach(t, func(_ *testing.T, f *fixture) {
		if f.DB.Name == testdb.SQLite {
			f.append("s", eventstore.Any, events(1, 1)...) // one writer at a time: nothing commits late
			f.stamp()
			f.Equal(numbers(1, 1), f.readAll(eventstore.ReadAllParams{}))
			return
		}
		late, idle, undone := f.begin(), f.begin(), f.begin()
		for i, tx := range []*sql.Tx{late, idle, undone} {
			_, err := f.store.Append(f.ctx(), tx, fmt.Sprint("of ", i), eventstore.NoStream, events(10+i, 1)...)
			f.NoError(err)
		}
		f.append("s", eventstore.Any, events(1, 2)...)
		f.stamp()
		f.Equal(numbers(1, 2), f.readAll(eventstore.ReadAllParams{}), "nobody waits for open transactions")
		naive := f.Number("SELECT MAX({seq}) FROM %s", f.part("event"))
		f.NoError(late.Commit())
		f.NoError(undone.Rollback())
		f.append("s", eventstore.Any, events(3, 1)...)
		f.stamp()
		f.Equal([]string{"10", "3"}, f.readAll(eventstore.ReadAllParams{After: 2}))
		f.Equal(1, f.Number("SELECT COUNT(*) FROM %s WHERE {seq} > %d", f.part("event"), naive), "the naive cursor sees one of the two")
		f.NoError(idle.Commit())
		f.stamp()
		f.Equal([]string{"11"}, f.readAll(eventstore.ReadAllParams{After: 4}))
		f.Equal([]string{"2", "10"}, f.readAll(eventstore.ReadAllParams{After: 1, To: 3}))
	})
}

// A subscription that catches up and then goes live misses nothing and repeats nothing at the switch, whenever it begins.
func TestACatchUpSubscriptionStartedAtAnyMomentMissesAndRepeatsNothing(t *testing.T) {
	forEach(t, func(t *testing.T, f *fixture) {
		readers, total := 6, full("OUTBOX_TEST_EVENTS", 200, 5000)
		if f.DB.Name == testdb.SQLServer {
			readers, total = 2, 40
		}
		f.sequence()
		var all group
		for r := range readers {
			start := make(chan struct{})
			all.Go(func() error {
				for i := range total / readers {
					if i == r*total/readers/readers { // at another moment each
						close(start)
					}
					if _, err := f.store.Append(t.Context(), nil, fmt.Sprint("writer ", r), eventstore.Any, events(i, 1)...); err != nil {
						return err
					}
					if i%3 == 0 {
						f.Enqueue("noise", 0, 1)
					}
				}
				return nil
			})
			all.Go(func() error {
				<-start
				seen := map[string]int64{}
				n, last := 0, int64(0)
				for e, err := range f.store.ReadAll(t.Context(), eventstore.ReadAllParams{Follow: true}) {
					if err != nil {
						return err
					}
					if e.Version != seen[e.Stream]+1 || e.Position <= last {
						return fmt.Errorf("version %d of %s, at %d, comes after %d, at %d", e.Version, e.Stream, e.Position, seen[e.Stream], last)
					}
					seen[e.Stream], last = e.Version, e.Position
					if n++; n == total/readers*readers {
						return nil
					}
				}
				return errors.New("the subscription ended")
			})
		}
		f.NoError(all.Wait())
	})
}

// Others read what was appended like any message of the log, in order.
func TestAConsumerGroupIsDeliveredEventsWithStreamVersionAndPosition(t *testing.T) {
	forEach(t, func(_ *testing.T, f *fixture) {
		f.append("a", eventstore.NoStream, events(1, 2)...)
		f.append("b", eventstore.NoStream, eventstore.Event{Topic: "elsewhere", Payload: []byte("9")})
		f.append("b", eventstore.Exactly(1), events(3, 1)...)
		f.sequence()
		config := f.Subscriber()
		config.ConsumerGroup = "group"
		subscriber, err := outbox.NewSubscriber(f.DB.DB, config, nil)
		f.NoError(err)
		defer func() { f.NoError(subscriber.Close()) }()
		messages, err := subscriber.Subscribe(f.ctx(), "events")
		f.NoError(err)
		for i, want := range [][4]string{{"1", "a", "1", "1"}, {"2", "a", "2", "2"}, {"3", "b", "2", "4"}} {
			msg := <-messages
			f.Equal(want, [4]string{string(msg.Payload), msg.Metadata[eventstore.HeaderStream], msg.Metadata[eventstore.HeaderVersion], msg.Metadata[eventstore.HeaderPosition]}, i)
			f.Equal("counted", msg.Metadata[eventstore.HeaderType])
			msg.Ack()
		}
		ctx, cancel := context.WithTimeout(f.ctx(), testoutbox.Patience)
		defer cancel()
		f.NoError(f.store.WaitFor(ctx, "group", "b", 2))
	})
}

type publisher struct {
	mu    sync.Mutex
	got   []string
	fails int
}

func (p *publisher) Publish(topic string, messages ...*message.Message) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, msg := range messages {
		if p.fails > 0 && len(p.got) == p.fails {
			return errors.New("away")
		}
		p.got = append(p.got, topic+" "+string(msg.Payload)+" "+msg.Metadata[eventstore.HeaderPosition])
	}
	return nil
}

func (p *publisher) Close() error { return nil }

func TestReplayPublishesARangeInOrderAndGoesOnWhereItStopped(t *testing.T) {
	forEach(t, func(_ *testing.T, f *fixture) {
		f.append("a", eventstore.NoStream, events(1, 5)...)
		f.stamp()
		to := &publisher{fails: 2}
		last, err := f.store.Replay(f.ctx(), to, "", eventstore.ReadAllParams{After: 1, To: 4})
		f.ErrorContains(err, "position 4")
		f.Equal(int64(3), last)
		to.fails = 0
		last, err = f.store.Replay(f.ctx(), to, "again", eventstore.ReadAllParams{After: last, To: 4})
		f.NoError(err)
		f.Equal(int64(4), last)
		f.Equal([]string{"events 2 2", "events 3 3", "again 4 4"}, to.got)

		// Into the same outbox: what is sent there with an event's headers is no event.
		again, err := outbox.NewPublisher(f.DB.DB, outbox.PublisherConfig{Dialect: testoutbox.Dialect(f.DB.Name), Schema: f.DB.Schema, Log: outbox.QueueAndLog}, nil)
		f.NoError(err)
		_, err = f.store.Replay(f.ctx(), again, "copies", eventstore.ReadAllParams{})
		f.NoError(err)
		f.stamp()
		f.Equal(numbers(1, 5), f.readAll(eventstore.ReadAllParams{}))
		f.Equal(10, f.rows("log"))
		f.True(slices.IsSorted(to.got[:2]))
	})
}

// Whoever reads a broker's partition gets the events of a stream in order only if they have its key.
func TestTrap_ReplayedEventsHaveTheKeyOfTheirStream(t *testing.T) {
	forEach(t, func(_ *testing.T, f *fixture) {
		f.append("a", eventstore.NoStream, events(1, 1)...)
		f.append("b", eventstore.NoStream, eventstore.Event{Metadata: map[string]string{outbox.HeaderStreamKey: "of another"}})
		f.stamp()
		to := &keys{}
		_, err := f.store.Replay(f.ctx(), to, "again", eventstore.ReadAllParams{})
		f.NoError(err)
		f.Equal([]string{"a", "b"}, to.got)
	})
}

// keys are the stream keys of what is published.
type keys struct{ got []string }

func (k *keys) Publish(_ string, messages ...*message.Message) error {
	for _, msg := range messages {
		k.got = append(k.got, msg.Metadata[outbox.HeaderStreamKey])
	}
	return nil
}

func (k *keys) Close() error { return nil }

// A zero is a text like any other. Only a version or position of 0 is none.
func TestTrap_AnEventOfZerosKeepsThem(t *testing.T) {
	forEach(t, func(_ *testing.T, f *fixture) {
		f.append("0", eventstore.NoStream, eventstore.Event{Type: "0", CorrelationID: "0", CausationID: "0"})
		for e, err := range f.store.Read(f.ctx(), nil, "0", eventstore.ReadParams{}) {
			f.NoError(err)
			got := e.Message().Metadata
			delete(got, outbox.HeaderMessageID)
			f.Equal(message.Metadata{eventstore.HeaderType: "0", "correlation_id": "0", eventstore.HeaderCausation: "0",
				eventstore.HeaderStream: "0", eventstore.HeaderVersion: "1"}, got)
		}
	})
}
