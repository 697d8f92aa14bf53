package wakepgx_test

import (
	"context"
	"database/sql"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/seam"
	"github.com/incursa/watermill-outbox/internal/testdb"
	wakepgx "github.com/incursa/watermill-outbox/wake/pgx"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// forPostgres runs a test where PostgreSQL is there; like everywhere, a missing server is no subtest.
func forPostgres(t *testing.T, f func(t *testing.T, db *testdb.DB)) {
	for _, backend := range testdb.Backends(t) {
		if backend.Name == testdb.Postgres {
			t.Run(backend.Name, func(t *testing.T) { f(t, backend.Open(t)) })
		}
	}
}

func start(t *testing.T, db *testdb.DB, store string) *wakepgx.Listener {
	t.Helper()
	channel := `a "channel" of ` + db.Schema
	notifier, err := wakepgx.NewNotifier(db.DB, wakepgx.NotifierConfig{Channel: channel, Store: store}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, notifier.Close()) })
	dsn := db.DSN + "&application_name=" + db.Schema
	if !strings.Contains(db.DSN, "?") {
		dsn = db.DSN + "?application_name=" + db.Schema
	}
	listener, err := wakepgx.NewListener(wakepgx.ListenerConfig{DSN: dsn, Channel: channel}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, listener.Close()) })
	return listener
}

// hear wakes until the listener, which connects in the background, has heard it.
func hear(t *testing.T, listener *wakepgx.Listener, topic string) {
	t.Helper()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	deadline := time.NewTimer(30 * time.Second)
	defer deadline.Stop()
	for {
		outbox.Wake(topic)
		select {
		case heard := <-listener.Wakeups():
			if heard == topic {
				return
			}
		case <-again.C:
		case <-deadline.C:
			require.FailNow(t, "nothing was heard")
		}
	}
}

func TestAWakeUpOfOneProcessIsHeardByAnother(t *testing.T) {
	forPostgres(t, func(t *testing.T, db *testdb.DB) { hear(t, start(t, db, ""), "orders 'of' \"Zürich\" 😀") })
}

func TestTheListenerConnectsAgain(t *testing.T) {
	forPostgres(t, func(t *testing.T, db *testdb.DB) {
		listener := start(t, db, "")
		hear(t, listener, "before")
		var killed int
		require.NoError(t, db.QueryRow(
			"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = $1", db.Schema).Scan(&killed))
		require.Equal(t, 1, killed)
		hear(t, listener, "after")
	})
}

// What was told while nobody listened is not known, so the Listener wakes everybody whenever it has connected.
func TestTrap_AListenerThatHasConnectedWakesAll(t *testing.T) {
	forPostgres(t, func(t *testing.T, db *testdb.DB) {
		listener := start(t, db, "")
		wakesAll := func() {
			deadline := time.NewTimer(30 * time.Second)
			defer deadline.Stop()
			for {
				select {
				case heard := <-listener.Wakeups():
					if heard == "" {
						return
					}
				case <-deadline.C:
					require.FailNow(t, "nobody was woken")
				}
			}
		}
		wakesAll()
		_, err := db.Exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1", db.Schema)
		require.NoError(t, err)
		wakesAll()
	})
}

func TestANotifierTellsOfItsStore(t *testing.T) {
	forPostgres(t, func(t *testing.T, db *testdb.DB) {
		listener := start(t, db, "a")
		hear(t, listener, "of all stores")
		seam.WakeStore("b", "1 of b") // which would be heard first, or not at all
		seam.WakeStore("a", "2 of a")
		deadline := time.NewTimer(30 * time.Second)
		defer deadline.Stop()
		for heard := ""; heard != "2 of a"; {
			select {
			case heard = <-listener.Wakeups():
				require.NotEqual(t, "1 of b", heard)
			case <-deadline.C:
				require.FailNow(t, "nothing was heard")
			}
		}
	})
}

func TestBadConfigurationIsNamed(t *testing.T) {
	_, err := wakepgx.NewNotifier(nil, wakepgx.NotifierConfig{}, nil)
	require.ErrorIs(t, err, base.ErrNilDB)
	long := strings.Repeat("ü", 32) // 64 bytes
	for _, config := range []wakepgx.NotifierConfig{{Interval: -1}, {Channel: long}} {
		_, err := wakepgx.NewNotifier(new(sql.DB), config, nil)
		requireField(t, err, "NotifierConfig.")
	}
	for _, config := range []wakepgx.ListenerConfig{{}, {DSN: "postgres://localhost:port"}, {DSN: "postgres://localhost", Channel: long}} {
		_, err := wakepgx.NewListener(config, nil)
		requireField(t, err, "ListenerConfig.")
	}
}

func requireField(t *testing.T, err error, prefix string) {
	t.Helper()
	var field *outbox.FieldError
	require.ErrorAs(t, err, &field)
	require.True(t, strings.HasPrefix(field.Field, prefix), field.Field)
}

// The longest name of a channel that PostgreSQL takes is heard.
func TestAChannelMayHave63Bytes(t *testing.T) {
	forPostgres(t, func(t *testing.T, db *testdb.DB) {
		channel := (db.Schema + strings.Repeat("x", 63))[:63]
		notifier, err := wakepgx.NewNotifier(db.DB, wakepgx.NotifierConfig{Channel: channel}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, notifier.Close()) })
		listener, err := wakepgx.NewListener(wakepgx.ListenerConfig{DSN: db.DSN, Channel: channel}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, listener.Close()) })
		hear(t, listener, "orders")
	})
}

// A message of the log reaches the group of another process by wake-ups alone: the first one has it get its position, which
// sends the second. Each part has a Store of its own, so that none hears another in this process; nobody polls.
func TestWakeupsCarryTheLog(t *testing.T) {
	forPostgres(t, func(t *testing.T, db *testdb.DB) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		require.NoError(t, outbox.Migrate(ctx, db.DB, outbox.MigrateConfig{Dialect: outbox.Postgres{}, Schema: db.Schema}))
		forSequencer, forReader := start(t, db, ""), start(t, db, "")
		hear(t, forSequencer, "before")
		hear(t, forReader, "before")

		sequencer, err := outbox.NewSequencer(db.DB, outbox.SequencerConfig{
			Dialect: outbox.Postgres{}, Schema: db.Schema, Store: "sequencer", PollInterval: time.Hour, Wakeups: forSequencer.Wakeups()}, nil)
		require.NoError(t, err)
		var running sync.WaitGroup
		running.Go(func() { _ = sequencer.Run(ctx) })
		defer running.Wait()
		defer cancel()
		subscriber, err := outbox.NewSubscriber(db.DB, outbox.SubscriberConfig{
			Dialect: outbox.Postgres{}, Schema: db.Schema, Store: "reader", ConsumerGroup: "group", Wakeups: forReader.Wakeups(),
			PollInterval: time.Hour, MaxPollInterval: time.Hour}, nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, subscriber.Close()) }()
		messages, err := subscriber.Subscribe(ctx, "orders")
		require.NoError(t, err)
		publisher, err := outbox.NewPublisher(db.DB, outbox.PublisherConfig{
			Dialect: outbox.Postgres{}, Schema: db.Schema, Store: "publisher", Log: outbox.LogOnly}, nil)
		require.NoError(t, err)
		var took []time.Duration
		for range 20 {
			published := time.Now()
			require.NoError(t, publisher.Publish("orders", message.NewMessage("1", nil)))
			timer := time.NewTimer(30 * time.Second)
			select {
			case msg := <-messages:
				took = append(took, time.Since(published))
				msg.Ack()
			case <-timer.C:
				require.FailNow(t, "nothing came")
			}
			timer.Stop()
		}
		slices.Sort(took)
		t.Logf("from Publish to the handler: %v to %v, median %v", took[0], took[19], took[10])
	})
}
