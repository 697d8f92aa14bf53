package acceptance_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/examples/event-registration/catalog"
	"github.com/incursa/watermill-outbox/examples/event-registration/database"
	"github.com/incursa/watermill-outbox/examples/event-registration/registration"
	"github.com/incursa/watermill-outbox/examples/event-registration/service"
)

// A flow is all three services and the broker, as make registration starts them.
type flow struct {
	*service.Service
	url   string
	mails string
	db    *database.Database
	event string
	logs  *lockedBuffer
}

type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func start(t *testing.T, dsn, amqp string) *flow {
	t.Helper()
	return startTraced(t, dsn, amqp, nil)
}

// startTraced runs the flow until the test ends, in a database of its own where it can have one, and checks that it then
// stops cleanly.
func startTraced(t *testing.T, dsn, amqp string, traces trace.TracerProvider) *flow {
	t.Helper()
	folder := t.TempDir()
	switch dsn {
	case "":
		dsn = filepath.Join(folder, "registration.db")
	case dsns["postgres"]: // what other tests have left would be sent, too
		own, drop, err := createPostgres(dsn)
		require.NoError(t, err)
		t.Cleanup(drop)
		dsn = own
	}
	f := &flow{mails: filepath.Join(folder, "mails"), event: "event-" + uuid.NewString(), logs: &lockedBuffer{}}
	var err error
	f.Service, err = service.Open(t.Context(), service.Config{DSN: dsn, AMQP: amqp, Mails: f.mails, Auth: auth, TracerProvider: traces},
		slog.New(slog.NewTextHandler(f.logs, &slog.HandlerOptions{Level: slog.LevelError})))
	require.NoError(t, err)
	f.db, err = database.Open(dsn, 2)
	require.NoError(t, err)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	f.url = "http://" + listener.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
		http.DefaultClient.CloseIdleConnections()
		require.NoError(t, f.Close())
		require.NoError(t, f.db.Close())
		if t.Failed() {
			t.Log(f.logs.String())
		}
	})
	return f
}

func (f *flow) save(t *testing.T, capacity int, status string) {
	t.Helper()
	require.NoError(t, f.Catalog().Save(t.Context(), registration.Snapshot{EventID: f.event, Title: "Concert", OrganizerID: organizer,
		Status: status, Capacity: capacity, WaitlistLimit: -1}))
}

func (f *flow) post(t *testing.T, user, action, body string) answer {
	t.Helper()
	q := request{method: http.MethodPost, path: "/join/v1/events/" + f.event + "/" + action, key: uuid.NewString(), body: body}
	a, err := sendTo(t.Context(), http.DefaultClient, f.url, token(t, user), q)
	require.NoError(t, err)
	return a
}

// until waits until the catalog has counted all that registration tells of.
func (f *flow) until(t *testing.T, active, waiting int) {
	t.Helper()
	require.Eventually(t, func() bool {
		e, err := f.Catalog().Get(context.Background(), f.event)
		return err == nil && e.Active == active && e.Waiting == waiting
	}, waitFor, tick, "the catalog should count %d and %d\n%s", active, waiting, f.logs)
}

func (f *flow) countMails() int {
	files, err := filepath.Glob(filepath.Join(f.mails, "*.txt"))
	if err != nil {
		return -1
	}
	return len(files)
}

func (f *flow) status(t *testing.T) string {
	t.Helper()
	e, err := f.Registration().Stats(context.Background(), f.event, registration.Actor{Admin: true})
	if err != nil {
		return err.Error()
	}
	return e.Status
}

// From the catalog's event to the mail, with a canceled event at the end.
func (f *flow) tell(t *testing.T) {
	f.save(t, 1, "open")
	require.Eventually(t, func() bool { return f.status(t) == "open" }, waitFor, tick)
	for _, user := range []string{"a", "b", "c"} {
		require.Equal(t, http.StatusOK, f.post(t, user, "join", "").status)
	}
	f.until(t, 1, 2)
	require.Equal(t, http.StatusOK, f.post(t, organizer, "kick", target("a")).status)
	f.until(t, 1, 1)
	f.save(t, 2, "open")
	f.until(t, 2, 0)
	f.save(t, 2, "canceled")
	require.Eventually(t, func() bool { return f.status(t) == "settled" }, waitFor, tick)
	f.until(t, 0, 0)
	// confirmed, waitlisted twice, kicked, promoted twice, canceled twice
	require.Eventually(t, func() bool { return f.countMails() == 8 }, waitFor, tick)
	require.ErrorIs(t, f.Catalog().Save(t.Context(), registration.Snapshot{EventID: f.event, Status: "open"}), catalog.ErrCanceled)
}

func TestTheWholeFlow(t *testing.T) {
	for name, dsn := range dsns {
		t.Run(name, func(t *testing.T) { start(t, dsn, "").tell(t) })
	}
}

func TestTheWholeFlowOverRabbitMQ(t *testing.T) {
	url := os.Getenv("OUTBOX_TEST_AMQP_URL")
	if url == "" {
		require.NotContains(t, os.Getenv("OUTBOX_TEST_REQUIRE"), "rabbitmq", "OUTBOX_TEST_AMQP_URL names none")
		t.Skip("OUTBOX_TEST_AMQP_URL names no RabbitMQ")
	}
	start(t, "", url).tell(t)
}

// What cannot be read is a dead letter that holds up nothing, and a redrive finds it.
func TestAPoisonedMessageIsADeadLetter(t *testing.T) {
	f := start(t, "", "")
	queue, err := outbox.New(f.db.DB, outbox.Config{Dialect: f.db.Dialect, Table: catalog.Table}, nil)
	require.NoError(t, err)
	for _, payload := range []string{"{", `{"event_id":"` + f.event + `","version":-1}`} {
		_, err = queue.Enqueue(t.Context(), f.db.DB, outbox.Message{UUID: watermill.NewUUID(), Topic: catalog.Topic, StreamKey: f.event, Payload: []byte(payload)})
		require.NoError(t, err)
	}
	f.save(t, 1, "open")
	require.Eventually(t, func() bool { return f.status(t) == "open" }, waitFor, tick)
	twoDead := func() bool {
		dead, err := f.DeadLetters(context.Background(), "registration.events")
		return err == nil && len(dead) == 2
	}
	require.Eventually(t, twoDead, waitFor, tick)
	redriven, err := f.Redrive(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string]int{"registration.events": 2, "catalog.joins": 0, "mail.joins": 0}, redriven)
	require.Eventually(t, twoDead, waitFor, tick)
}

func TestReconcilePutsCountersRight(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		f.snapshot(t, 1, 2, "open")
		f.join(t, "a", "b", "c")
		_, err := f.one().db.ExecContext(t.Context(), "UPDATE registration SET status = 'canceled' WHERE user_id = 'a' AND event_id = '"+f.event+"'")
		require.NoError(t, err)
		drifts, err := f.one().service.Reconcile(t.Context())
		require.NoError(t, err)
		require.Len(t, drifts, 1)
		require.Equal(t, 1, drifts[0].After.Active)
		e := f.requireBalanced(t)
		require.Equal(t, []int{2, 0}, []int{e.Active, e.Waiting}, "the free seat has gone to the waitlist")
		drifts, err = f.one().service.Reconcile(t.Context())
		require.NoError(t, err)
		require.Empty(t, drifts)
	})
}
