package readme

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/middleware"
)

// What follows stands on the pages word for word: TestGoOnThePagesCompiles looks for it here.

// openTestDB returns a database of its own with an outbox in it.
func openTestDB(t *testing.T) *sql.DB {
	t.Helper()
	dsn := "file:" + filepath.ToSlash(filepath.Join(t.TempDir(), "test.db")) +
		"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)&_txlock=immediate"
	db, err := outbox.OpenSQLite("sqlite", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	require.NoError(t, outbox.Migrate(t.Context(), db, outbox.MigrateConfig{Dialect: outbox.SQLite{}}))
	return db
}

func placeOrder(ctx context.Context, db *sql.DB, publisher message.Publisher, item string) error {
	return outbox.InTx(ctx, db, func(ctx context.Context, _ *sql.Tx) error {
		msg := message.NewMessageWithContext(ctx, watermill.NewUUID(), []byte(item))
		if err := publisher.Publish("orders", msg); err != nil {
			return err
		}
		if item == "unicorn" {
			return errors.New("there are no unicorns")
		}
		return nil
	})
}

func ship(msg *message.Message) error {
	if len(msg.Payload) == 0 {
		return outbox.Permanent(errors.New("there is nothing to ship"))
	}
	return nil
}

func TestShipRefusesAnEmptyOrder(t *testing.T) {
	err := ship(message.NewMessage(watermill.NewUUID(), nil))
	require.True(t, outbox.IsPermanent(err)) // goes to the dead letters at once
}

func TestNothingIsSentIfTheOrderFails(t *testing.T) {
	db := openTestDB(t)
	publisher, err := outbox.NewPublisher(db, outbox.PublisherConfig{Dialect: outbox.SQLite{}, RequireTx: true}, nil)
	require.NoError(t, err)

	require.NoError(t, placeOrder(t.Context(), db, publisher, "socks"))
	require.Error(t, placeOrder(t.Context(), db, publisher, "unicorn"))

	o, err := outbox.New(db, outbox.Config{Dialect: outbox.SQLite{}}, nil)
	require.NoError(t, err)
	claimed, err := o.Claim(t.Context(), outbox.ClaimParams{Topics: []outbox.TopicQuota{{Topic: "orders"}}})
	require.NoError(t, err)
	require.Len(t, claimed, 1)
	require.Equal(t, "socks", string(claimed[0].Payload))
}

func TestAnEmptyOrderIsADeadLetter(t *testing.T) {
	db := openTestDB(t)
	settled := make(chan outbox.SettleEvent, 1)
	subscriber, err := outbox.NewSubscriber(db, outbox.SubscriberConfig{
		Dialect: outbox.SQLite{},
		Backoff: outbox.ExponentialBackoff(time.Millisecond, time.Millisecond), // a retry need not take a second
		Hooks:   outbox.Hooks{OnSettle: func(e outbox.SettleEvent) { settled <- e }},
	}, nil)
	require.NoError(t, err)
	router, err := message.NewRouter(message.RouterConfig{}, nil)
	require.NoError(t, err)
	router.AddMiddleware(middleware.Outcome)
	router.AddConsumerHandler("ship", "orders", subscriber, ship)
	go func() { _ = router.Run(context.Background()) }()
	defer func() { require.NoError(t, outbox.Drain(context.Background(), router, subscriber)) }()

	o, err := outbox.New(db, outbox.Config{Dialect: outbox.SQLite{}}, nil)
	require.NoError(t, err)
	ids, err := o.Enqueue(t.Context(), db, outbox.Message{Topic: "orders"})
	require.NoError(t, err)

	e := <-settled // not a sleep: the transaction that settles the message is committed
	require.Equal(t, 1, e.Outcomes[outbox.Fail])
	records, err := o.Get(t.Context(), ids...)
	require.NoError(t, err)
	require.Equal(t, "there is nothing to ship", records[0].LastError)
}

// runAgain runs work in a transaction, again if it was a deadlock victim or the server was failing over.
func runAgain(ctx context.Context, db *sql.DB, work func(ctx context.Context, tx *sql.Tx) error) error {
	for try := 1; ; try++ {
		err := outbox.InTx(ctx, db, work)
		if err == nil || try == 5 || !outbox.IsRetryable(err) {
			return err
		}
		select {
		case <-time.After(time.Duration(try) * 200 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func TestWorkIsRunAgainWhileItMayBe(t *testing.T) {
	db := openTestDB(t)
	tries := 0
	err := runAgain(t.Context(), db, func(context.Context, *sql.Tx) error {
		if tries++; tries == 1 {
			return deadlock{}
		}
		return errors.New("not a conflict")
	})
	require.EqualError(t, err, "not a conflict")
	require.Equal(t, 2, tries)
}

// deadlock is what SQL Server tells a deadlock victim, as its driver reports it.
type deadlock struct{}

func (deadlock) Error() string         { return "deadlock victim" }
func (deadlock) SQLErrorNumber() int32 { return 1205 }

// serve runs until ctx ends.
func serve(ctx context.Context, router *message.Router, subscriber *outbox.Subscriber) error {
	ran := make(chan error, 1)
	go func() { ran <- router.Run(context.WithoutCancel(ctx)) }() // SIGTERM leaves it to Drain, whose deadline counts for all
	select {
	case err := <-ran:
		return err
	case <-ctx.Done(): // of signal.NotifyContext
	}
	deadline, cancel := context.WithTimeout(context.Background(), 25*time.Second) // Kubernetes kills after 30 s
	defer cancel()
	return outbox.Drain(deadline, router, subscriber)
}

func TestServeDrainsAndTheProbeSeesIt(t *testing.T) {
	db := openTestDB(t)
	subscriber, err := outbox.NewSubscriber(db, outbox.SubscriberConfig{Dialect: outbox.SQLite{}}, nil)
	require.NoError(t, err)
	router, err := message.NewRouter(message.RouterConfig{}, nil)
	require.NoError(t, err)
	router.AddConsumerHandler("ship", "orders", subscriber, ship)

	http.HandleFunc("/ready", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
		defer cancel()
		if !router.IsRunning() || db.PingContext(ctx) != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	ready := func() int {
		answer := httptest.NewRecorder()
		http.DefaultServeMux.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/ready", nil))
		return answer.Code
	}
	require.Equal(t, http.StatusServiceUnavailable, ready())

	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error)
	go func() { served <- serve(ctx, router, subscriber) }()
	<-router.Running()
	require.Equal(t, http.StatusOK, ready())
	stop()
	require.NoError(t, <-served)
}
