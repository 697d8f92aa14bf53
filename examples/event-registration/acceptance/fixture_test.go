// Package acceptance_test tests the whole service over HTTP: three replicas on one database.
package acceptance_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/examples/event-registration/database"
	"github.com/incursa/watermill-outbox/examples/event-registration/httpapi"
	"github.com/incursa/watermill-outbox/examples/event-registration/idempotency"
	"github.com/incursa/watermill-outbox/examples/event-registration/metrics"
	"github.com/incursa/watermill-outbox/examples/event-registration/registration"
	"github.com/incursa/watermill-outbox/internal/skipped"
	"github.com/incursa/watermill-outbox/internal/testbroker"
)

var auth = httpapi.AuthConfig{Secret: []byte("a secret of the tests, 32 bytes or more"), Issuer: "tests", Audience: "registration"}

const organizer = "organizer"

// dsns are the databases of this run. That of PostgreSQL is new, and all tests share it: each has events of its own.
var dsns = map[string]string{"sqlite": ""}

func TestMain(m *testing.M) {
	runProgram()
	os.Exit(func() (code int) {
		defer func() {
			if err := errors.Join(testbroker.Close(), skipped.Report()); err != nil {
				fmt.Fprintln(os.Stderr, err)
				code = max(code, 1)
			}
			http.DefaultClient.CloseIdleConnections()
			if err := goleak.Find(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				code = max(code, 1)
			}
		}()
		if dsn := os.Getenv("OUTBOX_TEST_POSTGRES_DSN"); dsn != "" && wanted("postgres") {
			created, drop, err := createPostgres(dsn)
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
			dsns["postgres"] = created
			defer drop()
		}
		if dsn := os.Getenv("OUTBOX_TEST_REGISTRATION_SQLSERVER_DSN"); dsn != "" {
			dsns["sqlserver"] = dsn
		}
		if !wanted("sqlite") {
			delete(dsns, "sqlite")
		}
		return m.Run()
	}())
}

func wanted(name string) bool {
	only := os.Getenv("OUTBOX_TEST_ONLY")
	return only == "" || strings.Contains(only, name)
}

// createPostgres creates a database on the server of another.
func createPostgres(dsn string) (created string, drop func(), err error) {
	admin, err := database.Open(dsn, 10)
	if err != nil {
		return "", nil, err
	}
	name := "registration_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	if _, err := admin.Exec("CREATE DATABASE " + name); err != nil {
		return "", nil, errors.Join(fmt.Errorf("create a database for the tests: %w", err), admin.Close())
	}
	slash := strings.LastIndex(dsn, "/")
	rest := ""
	if question := strings.Index(dsn[slash:], "?"); question >= 0 {
		rest = dsn[slash+question:]
	}
	return dsn[:slash+1] + name + rest, func() {
		if _, err := admin.Exec("DROP DATABASE " + name + " WITH (FORCE)"); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		_ = admin.Close()
	}, nil
}

// onEach runs a test on each database.
func onEach(t *testing.T, f func(t *testing.T, f *fixture)) {
	for name, dsn := range dsns {
		t.Run(name, func(t *testing.T) {
			f(t, newFixture(t, dsn, registration.Config{}))
		})
	}
}

type replica struct {
	db      *database.Database
	service *registration.Service
	metrics *metrics.Metrics
	keys    *idempotency.Store
	api     *httpapi.Server
	server  *httptest.Server
}

type fixture struct {
	dsn      string
	replicas []*replica
	event    string
	next     int
	heard    int64 // the revision of the last message that told has returned
}

func newFixture(t testing.TB, dsn string, config registration.Config) *fixture {
	t.Helper()
	if dsn == "" {
		dsn = filepath.Join(t.TempDir(), "registration.db")
	}
	f := &fixture{dsn: dsn, event: "event-" + uuid.NewString()}
	for range 3 {
		f.replicas = append(f.replicas, newReplica(t, dsn, config, httpapi.Config{Auth: auth, Timeout: time.Minute}))
	}
	return f
}

func newReplica(t testing.TB, dsn string, config registration.Config, api httpapi.Config) *replica {
	t.Helper()
	r := openReplica(t, dsn, config, api)
	require.NoError(t, r.service.Migrate(t.Context()))
	return r
}

// openReplica leaves the database as it is.
func openReplica(t testing.TB, dsn string, config registration.Config, api httpapi.Config) *replica {
	t.Helper()
	db, err := database.Open(dsn, 10)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	service, err := registration.New(db, config, nil)
	require.NoError(t, err)
	if api.Metrics == nil {
		api.Metrics, err = metrics.New()
		require.NoError(t, err)
	}
	r := &replica{db: db, service: service, metrics: api.Metrics, keys: idempotency.New(db, service.Statements(), idempotency.Config{})}
	r.api, err = httpapi.New(service, r.keys, api, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	r.server = httptest.NewServer(r.api)
	if transport, ok := r.server.Client().Transport.(*http.Transport); ok {
		transport.MaxIdleConnsPerHost = 100 // two, by default: others would connect for each request
	}
	t.Cleanup(r.server.Close)
	return r
}

func (f *fixture) one() *replica { return f.replicas[0] }

// in runs something in a transaction.
func (f *fixture) in(t testing.TB, do func(ctx context.Context, tx *sql.Tx) error) {
	t.Helper()
	require.NoError(t, outbox.InTx(t.Context(), f.one().db.DB, do))
}

// snapshot applies one and reports whether it counted.
func (f *fixture) snapshot(t testing.TB, version int64, capacity int, status string) (applied bool) {
	t.Helper()
	f.in(t, func(ctx context.Context, tx *sql.Tx) (err error) {
		applied, err = f.one().service.Apply(ctx, tx, registration.Snapshot{EventID: f.event, Version: version, Title: "Concert",
			OrganizerID: organizer, Status: status, Capacity: capacity, WaitlistLimit: -1})
		return err
	})
	return applied
}

// limitWaitlist makes an event with one seat and no waitlist.
func (f *fixture) limitWaitlist(t *testing.T) {
	t.Helper()
	f.in(t, func(ctx context.Context, tx *sql.Tx) error {
		_, err := f.one().service.Apply(ctx, tx, registration.Snapshot{EventID: f.event, Version: 1, Title: "Full", Status: "open", Capacity: 1})
		return err
	})
}

// tokenOf is a token of another issuer, for an audience of the same name.
func tokenOf(t testing.TB, issuer, user string) string {
	config := auth
	config.Issuer, config.Audience = issuer, issuer
	text, err := config.Token(registration.Actor{UserID: user, Admin: user == "admin"}, time.Hour)
	require.NoError(t, err)
	return text
}

func token(t testing.TB, user string) string {
	text, err := auth.Token(registration.Actor{UserID: user, Admin: user == "admin"}, time.Hour)
	require.NoError(t, err)
	return text
}

type answer struct {
	status int
	header http.Header
	body   []byte
}

// code is that of the problem.
func (a answer) code(t testing.TB) string {
	var p struct{ Code string }
	require.NoError(t, json.Unmarshal(a.body, &p), "%s", a.body)
	return p.Code
}

func (a answer) data(t testing.TB, into any) {
	require.Equal(t, http.StatusOK, a.status, "%s", a.body)
	require.NoError(t, json.Unmarshal(a.body, &struct{ Data any }{into}))
}

type request struct {
	method, path, user, key, body string
	header                        map[string]string
}

func send(ctx context.Context, server *httptest.Server, token string, q request) (answer, error) {
	return sendTo(ctx, server.Client(), server.URL, token, q)
}

func sendTo(ctx context.Context, client *http.Client, url, token string, q request) (answer, error) {
	r, err := http.NewRequestWithContext(ctx, q.method, url+q.path, bytes.NewBufferString(q.body))
	if err != nil {
		return answer{}, err
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if q.key != "" {
		r.Header.Set("Idempotency-Key", q.key)
	}
	for name, value := range q.header {
		r.Header.Set(name, value)
	}
	response, err := client.Do(r)
	if err != nil {
		return answer{}, err
	}
	body, err := io.ReadAll(response.Body)
	if closeErr := response.Body.Close(); err == nil {
		err = closeErr
	}
	return answer{response.StatusCode, response.Header, body}, err
}

func (f *fixture) send(t testing.TB, q request) answer {
	t.Helper()
	f.next++
	bearer := ""
	if q.user != "" {
		bearer = token(t, q.user)
	}
	a, err := send(t.Context(), f.replicas[f.next%len(f.replicas)].server, bearer, q)
	require.NoError(t, err)
	return a
}

// post sends a change with a new key.
func (f *fixture) post(t testing.TB, user, action, body string) answer {
	t.Helper()
	return f.send(t, request{method: http.MethodPost, path: f.path(action), user: user, key: uuid.NewString(), body: body})
}

func (f *fixture) get(t testing.TB, user, what string) answer {
	t.Helper()
	return f.send(t, request{method: http.MethodGet, path: f.path(what), user: user})
}

func (f *fixture) path(action string) string { return "/join/v1/events/" + f.event + "/" + action }

func target(user string) string { return `{"user_id":"` + user + `"}` }

type place struct {
	UserID string `json:"user_id"`
	Status string `json:"status"`
	Number int64  `json:"number"`
	Place  int    `json:"place"`
}

func (f *fixture) join(t *testing.T, users ...string) {
	t.Helper()
	for _, user := range users {
		require.Equal(t, http.StatusOK, f.post(t, user, "join", "").status)
	}
}

func (f *fixture) status(t *testing.T, user string) string {
	t.Helper()
	var p place
	f.get(t, user, "my").data(t, &p)
	return p.Status
}

// told drains the messages of the event, up to its revision, and checks that their order is that of the revisions.
func (f *fixture) told(t *testing.T) (messages []registration.Message) {
	t.Helper()
	queue := f.one().service.Outbox()
	e := f.read(t)
	for deadline := time.Now().Add(waitFor); f.heard < e.Revision; {
		require.True(t, time.Now().Before(deadline), "%d of %d messages have come", f.heard, e.Revision)
		claimed, err := queue.Claim(t.Context(), outbox.ClaimParams{Topics: []outbox.TopicQuota{{Topic: registration.TopicJoin, Quota: 1000}}, Limit: 1000, Run: 1000})
		require.NoError(t, err)
		var acks []outbox.Settlement
		for _, c := range claimed {
			var m registration.Message
			require.NoError(t, json.Unmarshal(c.Payload, &m))
			if m.EventID == f.event {
				f.heard++
				require.Equal(t, f.heard, m.Revision)
				messages = append(messages, m)
			}
			acks = append(acks, outbox.Settlement{Receipt: c.Receipt, Outcome: outbox.Ack})
		}
		_, err = queue.Settle(t.Context(), f.one().db.DB, acks)
		require.NoError(t, err)
	}
	return messages
}

func types(messages []registration.Message) (out []string) {
	for _, m := range messages {
		out = append(out, m.Type+" "+m.UserID)
	}
	return out
}

func (f *fixture) read(t *testing.T) registration.Event {
	t.Helper()
	e, err := f.one().service.Stats(t.Context(), f.event, registration.Actor{Admin: true})
	require.NoError(t, err)
	return e
}

// requireBalanced checks that counters equal rows.
func (f *fixture) requireBalanced(t *testing.T) registration.Event {
	t.Helper()
	e := f.read(t)
	require.Len(t, f.all(t, registration.Active), e.Active)
	require.Len(t, f.all(t, registration.Waitlisted), e.Waiting)
	return e
}

func (f *fixture) all(t *testing.T, status registration.Status) []registration.Registration {
	t.Helper()
	all, err := f.one().service.List(t.Context(), f.event, status, 0, 100_000, registration.Actor{Admin: true})
	require.NoError(t, err)
	return all
}
