package httpapi

import (
	"context"
	"net/http"

	"github.com/incursa/watermill-outbox/examples/event-registration/metrics"
)

func alive(w http.ResponseWriter, _ *http.Request) {
	_ = writeData(w, http.StatusOK, "alive") // the client may have gone
}

// ready is that of the database alone: the service works without Redis, and for a while without the broker.
func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	if s.draining.Load() {
		newProblem(http.StatusServiceUnavailable, "not_ready", "the service is stopping").retry("5").write(w)
		return
	}
	err := s.config.Ready(r.Context())
	if err != nil {
		s.logger.WarnContext(r.Context(), "not ready", "error", err)
	}
	writeReady(w, err)
}

func writeReady(w http.ResponseWriter, err error) {
	if err != nil {
		newProblem(http.StatusServiceUnavailable, "not_ready", "the database does not answer").retry("5").write(w)
		return
	}
	_ = writeData(w, http.StatusOK, "ready") // the client may have gone
}

// Operations is for a service without an API: /healthz, /readyz and /metrics.
func Operations(ready func(context.Context) error, m *metrics.Metrics) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", alive)
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) { writeReady(w, ready(r.Context())) })
	mux.Handle("GET /metrics", m.Handler())
	return mux
}
