package kafka_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/forwarder"
	"github.com/incursa/watermill-outbox/internal/testdb"
	"github.com/incursa/watermill-outbox/internal/testserver"
)

// A source is an outbox that is forwarded to a server.
type source struct {
	*require.Assertions
	t      *testing.T
	db     *testdb.DB
	outbox *outbox.Outbox
	states chan forwarder.State
	logger watermill.LoggerAdapter
}

// forEachSource runs a test on every database that there is.
func forEachSource(t *testing.T, test func(t *testing.T, o *source)) {
	t.Helper()
	testdb.ForEach(t, func(t *testing.T, db *testdb.DB) {
		ctx := t.Context()
		require.NoError(t, outbox.Migrate(ctx, db.DB, outbox.MigrateConfig{Dialect: dialect(db), Schema: db.Schema}))
		o, err := outbox.New(db.DB, outbox.Config{Dialect: dialect(db), Schema: db.Schema}, nil)
		require.NoError(t, err)
		test(t, &source{Assertions: require.New(t), t: t, db: db, outbox: o, states: make(chan forwarder.State, 100)})
	})
}

func dialect(db *testdb.DB) outbox.Dialect {
	switch db.Name {
	case testdb.Postgres:
		return outbox.Postgres{}
	case testdb.SQLServer:
		return outbox.SQLServer{}
	default:
		return outbox.SQLite{}
	}
}

// forward runs a forwarder of topics until the test ends.
func (o *source) forward(s *server, topics ...string) {
	o.t.Helper()
	f, err := forwarder.New(o.db.DB, s.newPublisher(), forwarder.Config{
		Topics: topics, RetryMax: 200 * time.Millisecond,
		Subscriber: outbox.SubscriberConfig{Dialect: dialect(o.db), Schema: o.db.Schema, AllowCompeting: true},
		OnState:    func(state forwarder.State) { o.states <- state },
	}, o.logger)
	o.NoError(err)
	ended := make(chan error, 1)
	go func() { ended <- f.Run(context.WithoutCancel(o.t.Context())) }()
	o.t.Cleanup(func() {
		o.NoError(f.Close())
		o.NoError(<-ended)
	})
}

func (o *source) enqueue(topic string, n int) []outbox.MessageID {
	o.t.Helper()
	messages := make([]outbox.Message, n)
	for i := range messages {
		messages[i] = outbox.Message{
			Topic: topic, UUID: watermill.NewUUID(), Payload: []byte(everyByte()), StreamKey: fmt.Sprint(i % 7),
			Headers: map[string]string{"a": "ä"}, CorrelationID: "c",
		}
	}
	return o.add(messages...)
}

func (o *source) add(messages ...outbox.Message) []outbox.MessageID {
	o.t.Helper()
	ids, err := o.outbox.Enqueue(o.t.Context(), o.db.DB, messages...)
	o.NoError(err)
	return ids
}

// becomes waits until messages have a status, and returns them.
func (o *source) becomes(status outbox.Status, ids ...outbox.MessageID) (records []outbox.Record) {
	o.t.Helper()
	o.Eventually(func() bool {
		var err error
		records, err = o.outbox.Get(o.t.Context(), ids...)
		if err != nil || len(records) != len(ids) {
			return false
		}
		for _, r := range records {
			if r.Status != status {
				return false
			}
		}
		return true
	}, patience, 20*time.Millisecond)
	return records
}

func (o *source) noAttemptIsSpent(records []outbox.Record) {
	o.t.Helper()
	for _, r := range records {
		o.Zero(r.RetryCount)
		o.Empty(r.LastError)
	}
}

func (o *source) awaitState(want forwarder.State) {
	o.t.Helper()
	for {
		select {
		case got := <-o.states:
			if got == want {
				return
			}
		case <-time.After(patience):
			o.FailNow("the breaker should be " + want.String())
		}
	}
}

func TestAMessageArrivesAsItWasEnqueued(t *testing.T) {
	forEachSource(t, func(t *testing.T, o *source) {
		s := newFake(t, kfake.NumBrokers(1))
		topic := s.createTopic(3)
		o.forward(s, topic)
		ids := o.enqueue(topic, 20)
		o.noAttemptIsSpent(o.becomes(outbox.Done, ids...))
		byID := map[string]outbox.MessageID{}
		for _, id := range ids {
			byID[id.String()] = id
		}
		for _, record := range s.read(topic, 20) {
			o.Equal(everyByte(), string(record.Value))
			o.Equal(header(record, outbox.HeaderStreamKey), string(record.Key))
			o.NotEmpty(record.Key)
			o.Equal("ä", header(record, "a"))
			o.Equal("c", header(record, "correlation_id"))
			o.Equal("1", header(record, forwarder.HeaderAttempt))
			o.Contains(byID, header(record, outbox.HeaderMessageID))
		}
	})
}

// Every connection is refused or cut for a while.
func TestAnOutageSpendsNoAttempts(t *testing.T) {
	forEachSource(t, func(t *testing.T, o *source) {
		number, address := testserver.FreePort(t)
		folder := t.TempDir()
		fake := startFake(t, kfake.Ports(number), kfake.DataDir(folder))
		s := newServer(t, []string{address})
		topic := s.createTopic(3)
		o.forward(s, topic)
		before := o.enqueue(topic, 50)
		o.becomes(outbox.Done, before...)

		fake.Close()
		during := o.enqueue(topic, 50)
		o.awaitState(forwarder.Open)
		fake = startFake(t, kfake.Ports(number), kfake.DataDir(folder))
		o.awaitState(forwarder.Closed)
		o.noAttemptIsSpent(o.becomes(outbox.Done, during...))

		away := make(chan struct{}, 10_000)
		back := make(chan struct{})
		fake.Control(func(kmsg.Request) (kmsg.Response, error, bool) { // all are cut
			select {
			case <-back:
				return nil, nil, false
			default:
				fake.KeepControl()
				away <- struct{}{}
				return nil, context.Canceled, true
			}
		})
		cut := o.enqueue(topic, 50)
		o.awaitState(forwarder.Open)
		<-away
		close(back)
		o.awaitState(forwarder.Closed)
		o.noAttemptIsSpent(o.becomes(outbox.Done, cut...))
		s.read(topic, 150)
	})
}

func TestAMessageThatIsTooLargeFailsWithTheReason(t *testing.T) {
	forEachSource(t, func(t *testing.T, o *source) {
		s := newFake(t, kfake.NumBrokers(1))
		topic := s.createTopic(1, "max.message.bytes", "10000")
		o.forward(s, topic)
		large := o.add(outbox.Message{Topic: topic, UUID: "large", Payload: []byte(strings.Repeat("x", 20_000))},
			outbox.Message{Topic: topic, UUID: "larger", Payload: []byte(strings.Repeat("x", 2_000_000))})
		others := o.enqueue(topic, 20)
		o.noAttemptIsSpent(o.becomes(outbox.Done, others...))
		for _, r := range o.becomes(outbox.Failed, large...) {
			o.Contains(r.LastError, "large")
		}
		s.Len(s.read(topic, 20), 20)
	})
}

// The topic is the only one, so that nothing tells a missing topic from an outage: its messages are kept.
func TestATopicThatIsMadeLaterGetsItsMessages(t *testing.T) {
	forEachSource(t, func(t *testing.T, o *source) {
		s := newFake(t, kfake.NumBrokers(1))
		topic := topicName()
		ids := o.enqueue(topic, 20)
		o.forward(s, topic)
		o.awaitState(forwarder.Open)
		s.create(topic, 1)
		o.noAttemptIsSpent(o.becomes(outbox.Done, ids...))
		s.Len(s.read(topic, 20), 20)
	})
}

// A topic that is missing holds only its own messages, whatever else gets through.
func TestATopicThatIsMissingHoldsItsMessagesWhileOthersGetThrough(t *testing.T) {
	forEachSource(t, func(t *testing.T, o *source) {
		s := newFake(t, kfake.NumBrokers(1))
		there, missing := s.createTopic(1), topicName()
		o.forward(s, there, missing)
		held := o.enqueue(missing, 20)
		o.noAttemptIsSpent(o.becomes(outbox.Done, o.enqueue(there, 20)...))
		o.noAttemptIsSpent(o.becomes(outbox.InProgress, held...))
		s.create(missing, 1)
		o.noAttemptIsSpent(o.becomes(outbox.Done, held...))
	})
}
