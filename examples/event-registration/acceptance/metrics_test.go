package acceptance_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/incursa/watermill-outbox/examples/event-registration/httpapi"
	"github.com/incursa/watermill-outbox/examples/event-registration/registration"
)

func TestMetricsCountWhatHappens(t *testing.T) {
	r := newReplica(t, t.TempDir()+"/metrics.db", registration.Config{}, httpapi.Config{Auth: auth})
	f := &fixture{event: "concert", replicas: []*replica{r}}
	f.snapshot(t, 1, 1, "open")
	f.join(t, "a", "b")
	join := request{method: http.MethodPost, path: f.path("join"), user: "a", key: "again"}
	f.send(t, join)
	f.send(t, join)
	f.post(t, "c", "ban", target("a"))
	f.get(t, "a", "my")
	f.send(t, request{method: http.MethodGet, path: "/nothing/7"})
	text := string(f.send(t, request{method: http.MethodGet, path: "/metrics"}).body)
	for _, line := range []string{
		`registration_changes_total{action="join",outcome="done"} 2`,
		`registration_changes_total{action="join",outcome="state_already_reached"} 1`,
		`registration_changes_total{action="ban",outcome="auth.forbidden"} 1`,
		`registration_replays_total{action="join"} 1`,
		`http_requests_total{method="POST",route="/join/v1/events/{id}/join",status="200"} 2`,
		`http_requests_total{method="GET",route="unknown",status="404"} 1`,
		`http_request_duration_seconds_count{method="GET",route="/join/v1/events/{id}/my"} 1`,
		`http_requests_in_flight 1`,
		`process_start_time_seconds `,
		`outbox_operation_duration_seconds_count{operation="publish",store=""} 0`,
	} {
		require.True(t, strings.Contains(text, line), line)
	}
	require.False(t, strings.Contains(text, "concert"), "no figure of a single event")
	problems, err := testutil.GatherAndLint(r.metrics.Gatherer())
	require.NoError(t, err)
	for _, problem := range problems {
		require.True(t, strings.HasPrefix(problem.Metric, "outbox_"), "%s: %s", problem.Metric, problem.Text)
	}
}
