package acceptance_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/incursa/watermill-outbox/examples/event-registration/httpapi"
	"github.com/incursa/watermill-outbox/examples/event-registration/metrics"
	"github.com/incursa/watermill-outbox/examples/event-registration/registration"
	"github.com/incursa/watermill-outbox/examples/event-registration/shared"
	"github.com/incursa/watermill-outbox/internal/testserver"
)

// withRedis returns two replicas that share a Redis.
func withRedis(t *testing.T, url string, rate, burst float64) *fixture {
	t.Helper()
	f := &fixture{event: "concert", dsn: t.TempDir() + "/redis.db"}
	for range 2 {
		m, err := metrics.New()
		require.NoError(t, err)
		r, err := shared.Open(url, shared.Config{Rate: rate, Burst: burst, TTL: time.Minute, Fallback: httpapi.NewBuckets(rate, burst), Metrics: m})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, r.Close()) })
		f.replicas = append(f.replicas, newReplica(t, f.dsn, registration.Config{}, httpapi.Config{Auth: auth, Limiter: r, Cache: r, Metrics: m}))
	}
	return f
}

func client(t *testing.T, url string) *redis.Client {
	t.Helper()
	options, err := redis.ParseURL(url)
	require.NoError(t, err)
	c := redis.NewClient(options)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func TestReplicasShareTheirLimits(t *testing.T) {
	_, url := testserver.Redis(t)
	f := withRedis(t, url, 0.01, 4)
	for range 4 { // two on each
		require.Equal(t, http.StatusNotFound, f.get(t, "a", "my").status)
	}
	for range 2 {
		a := f.get(t, "a", "my")
		require.Equal(t, "rate_limited", a.code(t))
		require.Equal(t, "100", a.header.Get("Retry-After"))
	}
	require.Equal(t, http.StatusNotFound, f.get(t, "b", "my").status)
	left, err := client(t, url).PTTL(t.Context(), "limit:a").Result()
	require.NoError(t, err)
	require.Positive(t, left, "nobody is locked out for ever")
}

func TestWhatIsCachedIsNeverOlderThanAChange(t *testing.T) {
	_, url := testserver.Redis(t)
	f := withRedis(t, url, 1000, 1000)
	stats := func() (s struct{ Active, Waiting int }) {
		f.get(t, organizer, "stats").data(t, &s)
		return s
	}
	f.snapshot(t, 1, 2, "open")
	f.join(t, "a", "b", "c")
	for range 2 { // on each replica
		require.Equal(t, 2, stats().Active)
	}
	_, err := f.one().db.ExecContext(t.Context(), "UPDATE registration_event SET title = 'not seen'")
	require.NoError(t, err)
	var title struct{ Title string }
	f.get(t, organizer, "stats").data(t, &title)
	require.Equal(t, "Concert", title.Title, "it is read from the cache")
	require.Equal(t, "auth.forbidden", f.get(t, "b", "stats").code(t), "also by those who may not")

	old, err := client(t, url).HGetAll(t.Context(), "cache:concert").Result()
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, f.post(t, "a", "cancel", "").status)
	require.Equal(t, http.StatusOK, f.post(t, "b", "cancel", "").status)
	require.Equal(t, 1, stats().Active)
	r, err := shared.Open(url, shared.Config{Metrics: f.one().metrics})
	require.NoError(t, err)
	r.Put(t.Context(), "concert", 1, []byte(old["value"]))
	require.NoError(t, r.Close())
	require.Equal(t, 1, stats().Active, "a slow reader's old figures stay out")
}

func TestWithoutRedisTheServiceIsRight(t *testing.T) {
	server, url := testserver.Redis(t)
	f := withRedis(t, url, 0.01, 30)
	f.snapshot(t, 1, 1, "open")
	f.join(t, "a")
	require.NoError(t, server.Stop())
	f.join(t, "b")
	require.Equal(t, "waitlisted", f.status(t, "b"))
	require.Equal(t, http.StatusOK, f.post(t, "a", "cancel", "").status)
	require.Equal(t, "active", f.status(t, "b"))
	require.Equal(t, http.StatusOK, f.get(t, organizer, "stats").status)
	require.Equal(t, http.StatusOK, f.send(t, request{method: http.MethodGet, path: "/readyz"}).status, "it is ready without")
	limited := 0
	for range 70 { // each replica limits for itself
		if f.get(t, "c", "my").status == http.StatusTooManyRequests {
			limited++
		}
	}
	require.Equal(t, 10, limited)
	text := string(f.send(t, request{method: http.MethodGet, path: "/metrics"}).body)
	require.True(t, strings.Contains(text, "registration_redis_errors_total"))
	require.NoError(t, server.Start())
	direct := client(t, url)
	bearer := token(t, "d")
	back := func() bool {
		_, err := send(context.Background(), f.one().server, bearer, request{method: http.MethodGet, path: f.path("my")})
		known, redisErr := direct.Exists(context.Background(), "limit:d").Result()
		return err == nil && redisErr == nil && known == 1
	}
	require.Eventually(t, back, waitFor, tick, "it is used again")
	f.requireBalanced(t)
}
