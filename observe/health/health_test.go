package health_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/observe/health"
	"github.com/incursa/watermill-outbox/stores"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func ask(h http.Handler, method, path string) (int, string) {
	recorder := httptest.NewRecorder()
	h.ServeHTTP(recorder, httptest.NewRequest(method, path, nil))
	return recorder.Code, recorder.Body.String()
}

func made(t *testing.T, config health.Config) http.Handler {
	t.Helper()
	h, err := health.New(config)
	require.NoError(t, err)
	return h
}

func TestBadConfigurationIsNamed(t *testing.T) {
	for field, config := range map[string]health.Config{
		"Config.Timeout":            {Timeout: -time.Second},
		`Config.Live["loop"]`:       {Live: map[string]health.Check{"loop": nil}},
		`Config.Ready["forwarder"]`: {Timeout: time.Hour, Ready: map[string]health.Check{"forwarder": nil, "database": well}},
	} {
		_, err := health.New(config)
		var bad *outbox.FieldError
		require.ErrorAs(t, err, &bad, field)
		require.Equal(t, field, bad.Field)
	}
	_, err := health.New(health.Config{Timeout: 1<<63 - 1})
	require.ErrorContains(t, err, "Config.Timeout: 2562047h47m16.854775807s is not between 0 and 24h0m0s")
}

func well(context.Context) error { return nil }

func TestItSaysWhy(t *testing.T) {
	h := made(t, health.Config{
		Live: map[string]health.Check{"loop": well},
		Ready: map[string]health.Check{
			"database": func(context.Context) error { return errors.New("connection refused") }, "broker": well,
			"buggy": func(context.Context) error { panic("gone") },
		},
	})
	code, body := ask(h, http.MethodGet, "/livez")
	require.Equal(t, http.StatusOK, code)
	require.JSONEq(t, `{"status":"ok","checks":[{"name":"loop","status":"ok"}]}`, body)
	code, body = ask(h, http.MethodGet, "/internal/readyz")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.JSONEq(t, `{"status":"unavailable","checks":[{"name":"broker","status":"ok"},
		{"name":"buggy","status":"unavailable","why":"the check panicked"},
		{"name":"database","status":"unavailable","why":"connection refused"}]}`, body)
	code, _ = ask(h, http.MethodGet, "/")
	require.Equal(t, http.StatusNotFound, code)
	code, _ = ask(h, http.MethodPost, "/readyz")
	require.Equal(t, http.StatusMethodNotAllowed, code)
}

// A check that hangs fails in time, and runs once however many ask.
func TestAHangingCheckRunsOnce(t *testing.T) {
	var runs atomic.Int32
	release := make(chan struct{})
	h := made(t, health.Config{Timeout: 20 * time.Millisecond, Ready: map[string]health.Check{"stuck": func(context.Context) error {
		runs.Add(1)
		<-release
		return nil
	}}})
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() {
			code, body := ask(h, http.MethodGet, "/readyz")
			assert.Equal(t, http.StatusServiceUnavailable, code)
			assert.Contains(t, body, "no answer within 20ms")
		})
	}
	all.Wait()
	require.EqualValues(t, 1, runs.Load())
	close(release)
}

func TestStores(t *testing.T) {
	var status []stores.StoreStatus
	check := health.Stores(func() []stores.StoreStatus { return status })
	require.NoError(t, check(t.Context()))
	away := errors.New("away")
	status = []stores.StoreStatus{{Store: "a", State: stores.Open, LastError: away}, {Store: "b"}}
	require.NoError(t, check(t.Context()), "the others are served")
	status[1] = stores.StoreStatus{Store: "b", State: stores.Open, LastError: away}
	require.ErrorIs(t, check(t.Context()), away)
	require.ErrorContains(t, check(t.Context()), "none of 2 stores answers, the first being a, b")
}
