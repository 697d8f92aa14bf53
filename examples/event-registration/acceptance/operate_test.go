package acceptance_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

// A request to join, what it tells, and the mail that it ends in are one trace.
func TestATraceFromARequestToTheMail(t *testing.T) {
	for name, dsn := range dsns {
		t.Run(name, func(t *testing.T) {
			exporter := tracetest.NewInMemoryExporter()
			f := startTraced(t, dsn, "", sdk.NewTracerProvider(sdk.WithSyncer(exporter)))
			f.save(t, 1, "open")
			require.Eventually(t, func() bool { return f.status(t) == "open" }, waitFor, tick)
			require.Equal(t, http.StatusOK, f.post(t, "ada", "join", "").status)

			want := []string{
				"POST /join/v1/events/{id}/join server",
				"process catalog.joins consumer", "process mail.joins consumer", // from their inboxes
				"process registration.join consumer", "process registration.join consumer", // from the broker
				"send registration.join client", // by the forwarder
			}
			var spans []string
			require.Eventually(t, func() bool { spans = traceOf(exporter.GetSpans(), want[0]); return len(spans) >= len(want) }, waitFor, tick,
				"only %v", &spans)
			require.Equal(t, want, spans)
			require.Positive(t, f.countMails()) // in a database of its own, one
		})
	}
}

// traceOf are the spans in the trace of one of them, by name and kind.
func traceOf(all tracetest.SpanStubs, of string) (spans []string) {
	name := func(s tracetest.SpanStub) string { return s.Name + " " + s.SpanKind.String() }
	var id trace.TraceID
	for _, s := range all {
		if name(s) == of {
			id = s.SpanContext.TraceID()
		}
	}
	for _, s := range all {
		if s.SpanContext.TraceID() == id {
			spans = append(spans, name(s))
		}
	}
	slices.Sort(spans)
	return spans
}

// The console has the outboxes and inboxes of all services, for admins who have signed in.
func TestTheConsoleIsForAdmins(t *testing.T) {
	f := start(t, "", "")
	f.save(t, 1, "open")
	require.Eventually(t, func() bool { return f.status(t) == "open" }, waitFor, tick)
	see := func(user, path string) answer {
		q := request{method: http.MethodGet, path: "/console/" + path, header: map[string]string{}}
		if user != "" {
			q.header["Cookie"] = "token=" + token(t, user)
		}
		a, err := sendTo(t.Context(), http.DefaultClient, f.url, "", q)
		require.NoError(t, err)
		return a
	}
	require.Equal(t, http.StatusUnauthorized, see("", "").status)
	require.Equal(t, http.StatusForbidden, see(organizer, "").status)
	page := see("admin", "")
	require.Equal(t, http.StatusOK, page.status)
	for _, store := range []string{"join-service", "join-service inbox", "event-service", "event-service inbox", "email-service inbox"} {
		require.Contains(t, string(page.body), ">"+store+"<")
	}
	require.Contains(t, string(see("admin", "forwarders").body), "event-service")
	require.Eventually(t, func() bool {
		return strings.Contains(string(see("admin", "s/event-service/search").body), "catalog.event")
	}, waitFor, tick)
}
