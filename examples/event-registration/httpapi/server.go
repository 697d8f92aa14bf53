// Package httpapi is the service over HTTP: openapi.json says what it offers.
package httpapi

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/incursa/watermill-outbox/examples/event-registration/idempotency"
	"github.com/incursa/watermill-outbox/examples/event-registration/metrics"
	"github.com/incursa/watermill-outbox/examples/event-registration/registration"
)

// Config configures a Server.
type Config struct {
	Auth AuthConfig // required

	// Limiter limits users. Defaults to none.
	Limiter Limiter

	// Cache keeps the figures of events. Defaults to none: they are read from the database.
	Cache Cache

	// Metrics counts requests and changes, and is served at /metrics. Required.
	Metrics *metrics.Metrics

	// Timeout is how long a request may take. Defaults to 10 s.
	Timeout time.Duration

	// Ready says whether the service can work. Defaults to always.
	Ready func(context.Context) error
}

// maxBody is the most bytes of a request's body.
const maxBody = 16 << 10

//go:embed openapi.json
var openAPI []byte

// A Server is a http.Handler.
type Server struct {
	service  *registration.Service
	keys     *idempotency.Store
	config   Config
	logger   *slog.Logger
	mux      *http.ServeMux
	draining atomic.Bool
}

// New returns a server of the service.
func New(service *registration.Service, keys *idempotency.Store, config Config, logger *slog.Logger) (*Server, error) {
	if err := config.Auth.validate(); err != nil {
		return nil, err
	}
	if config.Metrics == nil {
		return nil, errors.New("httpapi: Config.Metrics is nil")
	}
	if config.Timeout == 0 {
		config.Timeout = 10 * time.Second
	}
	if config.Ready == nil {
		config.Ready = func(context.Context) error { return nil }
	}
	s := &Server{service: service, keys: keys, config: config, logger: logger, mux: http.NewServeMux()}
	s.routes()
	return s, nil
}

// Drain makes the service not ready, so that a load balancer sends nothing more. Requests are still answered.
func (s *Server) Drain() { s.draining.Store(true) }

func (s *Server) routes() {
	s.mux.HandleFunc("GET /healthz", alive)
	s.mux.HandleFunc("GET /readyz", s.ready)
	s.mux.Handle("GET /metrics", s.config.Metrics.Handler())
	s.mux.HandleFunc("GET /openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(openAPI) // the client may have gone
	})
	for action, f := range s.actions() {
		s.mux.HandleFunc("POST /join/v1/events/{id}/"+action, s.authenticated(s.change(action, f)))
	}
	s.mux.HandleFunc("GET /join/v1/events/{id}/my", s.authenticated(s.my))
	s.mux.HandleFunc("GET /join/v1/me/joins", s.authenticated(s.mine))
	s.mux.HandleFunc("GET /join/v1/events/{id}/participants", s.authenticated(s.list(registration.Active)))
	s.mux.HandleFunc("GET /join/v1/events/{id}/waitlist", s.authenticated(s.list(registration.Waitlisted)))
	s.mux.HandleFunc("GET /join/v1/events/{id}/stats", s.authenticated(s.stats))
	s.pages()
	s.mux.HandleFunc("/", s.unknown)
}

// A handler answers, or returns why not.
type handler func(w http.ResponseWriter, r *http.Request, actor registration.Actor) error

func (s *Server) authenticated(next handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		actor, err := s.authenticate(r)
		if err == nil {
			err = s.limit(r.Context(), actor)
		}
		if err == nil && r.PathValue("id") != "" && !validID(r.PathValue("id")) {
			err = invalid("the event's id has 1 to 64 letters, digits, dots, dashes or underscores")
		}
		if err == nil {
			err = next(w, r, actor)
		}
		if err != nil {
			s.fail(w, r, err)
		}
	}
}

func (s *Server) limit(ctx context.Context, actor registration.Actor) error {
	if s.config.Limiter == nil {
		return nil
	}
	ok, after := s.config.Limiter.Allow(ctx, actor.UserID)
	if ok {
		return nil
	}
	return newProblem(http.StatusTooManyRequests, "rate_limited", "too many requests").retry(strconv.Itoa(int(math.Ceil(after.Seconds()))))
}

func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	p := asProblem(err)
	if p.Status >= http.StatusInternalServerError {
		s.logger.ErrorContext(r.Context(), "the request failed", "path", r.URL.Path, "error", err, "request_id", w.Header().Get("X-Request-Id"))
	}
	p.write(w)
}

// unknown answers what the mux has no route for: the path is unknown, or only the method.
func (s *Server) unknown(w http.ResponseWriter, r *http.Request) {
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		other := r.Clone(r.Context())
		other.Method = method
		if _, pattern := s.mux.Handler(other); pattern != "/" {
			w.Header().Set("Allow", method)
			newProblem(http.StatusMethodNotAllowed, "request.method_not_allowed", "").write(w)
			return
		}
	}
	newProblem(http.StatusNotFound, "request.not_found", "there is no such path").write(w)
}

// ServeHTTP answers a request within the timeout, and logs it.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	defer s.config.Metrics.Begin()()
	ctx, cancel := context.WithTimeout(r.Context(), s.config.Timeout)
	defer cancel()
	id := uuid.NewString()
	w.Header().Set("X-Request-Id", id)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	seen := &recorder{ResponseWriter: w, status: http.StatusOK}
	outer := r
	r = r.WithContext(ctx)
	defer func() {
		outer.Pattern = r.Pattern // for the name of the span
		if p := recover(); p != nil {
			s.fail(seen, r, fmt.Errorf("panic: %v", p))
		}
		took := time.Since(began)
		s.config.Metrics.Request(r.Method, route(r), seen.status, took)
		s.logger.InfoContext(ctx, "request", "method", r.Method, "path", r.URL.Path, "status", seen.status, "took", took, "request_id", id)
	}()
	s.mux.ServeHTTP(seen, r)
}

// route is the path of the pattern that matched, without what differs from event to event.
func route(r *http.Request) string {
	_, path, found := strings.Cut(r.Pattern, " ")
	if !found {
		return "unknown"
	}
	return path
}

type recorder struct {
	http.ResponseWriter
	status int
}

func (r *recorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
