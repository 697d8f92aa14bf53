// Package health answers the questions of whoever runs a service: is it alive, and is it ready, and if not, why.
//
//	handler, err := health.New(health.Config{Ready: map[string]health.Check{
//		"database":  health.Database(db, outbox.MigrateConfig{Dialect: outbox.Postgres{}}),
//		"forwarder": health.Forwarder(relay),
//	}})
//	mux.Handle("/livez", handler)
//	mux.Handle("/readyz", handler)
//
// The answers are JSON and hold the texts of errors, which may name servers and tables: serve them on a port that only your
// own network reaches.
package health

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/forwarder"
	"github.com/incursa/watermill-outbox/internal/field"
	"github.com/incursa/watermill-outbox/internal/limits"
	"github.com/incursa/watermill-outbox/stores"
)

// A Check returns why something is not well, or nil. It should end with its context.
type Check func(context.Context) error

// Config configures a handler.
type Config struct {
	// Live are asked by /livez. A process that is not alive is usually killed, so a database that is away is no reason. Defaults
	// to none: the process is alive if it answers.
	Live map[string]Check

	// Ready are asked by /readyz. Defaults to none.
	Ready map[string]Check

	// Timeout bounds each answer, up to 24 h. A check that takes longer has failed. Defaults to 2 s.
	Timeout time.Duration
}

// New returns a handler for /livez, /readyz, or both. The last part of the path decides, so that it can be mounted anywhere. It
// answers 200 if all is well and otherwise 503. Any number of requests at once ask each check only once. It returns an
// *outbox.FieldError that names a bad field.
func New(config Config) (http.Handler, error) {
	field.Default(&config.Timeout, 2*time.Second)
	if err := config.validate(); err != nil {
		return nil, err
	}
	return &handler{live: newAsked(config.Live, config.Timeout), ready: newAsked(config.Ready, config.Timeout)}, nil
}

func (c *Config) validate() error {
	if c.Timeout < 0 || c.Timeout > limits.Longest {
		return field.Bad("Config.Timeout", "%v is not between 0 and %v", c.Timeout, limits.Longest)
	}
	for name, checks := range map[string]map[string]Check{"Live": c.Live, "Ready": c.Ready} {
		for check, f := range checks {
			if f == nil {
				return field.Bad(fmt.Sprintf("Config.%s[%q]", name, check), "is nil; leave it out, or pass a function")
			}
		}
	}
	return nil
}

type handler struct{ live, ready *asked }

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "ask with GET", http.StatusMethodNotAllowed)
		return
	}
	var about *asked
	switch {
	case strings.HasSuffix(r.URL.Path, "/livez"):
		about = h.live
	case strings.HasSuffix(r.URL.Path, "/readyz"):
		about = h.ready
	default:
		http.NotFound(w, r)
		return
	}
	a := about.answer(r.Context())
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if a.Status != ok {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(a) // whoever asked may have left
}

const (
	ok    = "ok"
	notOK = "unavailable"
)

type answer struct {
	Status string   `json:"status"`
	Checks []result `json:"checks,omitempty"`
}

type result struct {
	Name   string `json:"name"`
	Status string `json:"status"`
	Why    string `json:"why,omitempty"`
}

// asked are checks, of which each runs once at a time: one that hangs is not piled up by further requests.
type asked struct {
	checks  map[string]Check
	timeout time.Duration

	mu      sync.Mutex
	running map[string]*run
}

type run struct {
	done chan struct{}
	err  error // once done is closed
}

func newAsked(checks map[string]Check, timeout time.Duration) *asked {
	return &asked{checks: maps.Clone(checks), timeout: timeout, running: map[string]*run{}}
}

func (a *asked) answer(ctx context.Context) answer {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	names := slices.Sorted(maps.Keys(a.checks))
	runs := make([]*run, len(names))
	for i, name := range names {
		runs[i] = a.run(name) //nolint:contextcheck // others may be waiting for it too
	}
	all := answer{Status: ok}
	for i, name := range names {
		r := result{Name: name, Status: ok}
		if err := runs[i].wait(ctx, a.timeout); err != nil {
			r.Status, r.Why, all.Status = notOK, err.Error(), notOK
		}
		all.Checks = append(all.Checks, r)
	}
	return all
}

func (a *asked) run(name string) *run {
	a.mu.Lock()
	defer a.mu.Unlock()
	if running := a.running[name]; running != nil {
		return running
	}
	r := &run{done: make(chan struct{}), err: errPanic}
	a.running[name] = r
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), a.timeout)
		defer cancel()
		defer func() {
			_ = recover() // r.err says so
			a.mu.Lock()
			defer a.mu.Unlock()
			delete(a.running, name)
			close(r.done)
		}()
		r.err = a.checks[name](ctx)
	}()
	return r
}

var errPanic = errors.New("the check panicked")

func (r *run) wait(ctx context.Context, timeout time.Duration) error {
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return fmt.Errorf("no answer within %v", timeout)
	}
}

// Database checks that a database answers and that an outbox is installed there, by outbox.Check.
func Database(db *sql.DB, config outbox.MigrateConfig) Check {
	return func(ctx context.Context) error { return outbox.Check(ctx, db, config) }
}

// Forwarder checks that a forwarder's broker can be reached.
func Forwarder(f *forwarder.Forwarder) Check {
	return func(context.Context) error {
		if f.State() == forwarder.Open {
			return errors.New("nothing can be published to the broker")
		}
		return nil
	}
}

// Stores checks that at least one store answers, and names those that do not if there is none. Pass the Status of a Subscriber
// of the package stores.
func Stores(status func() []stores.StoreStatus) Check {
	return func(context.Context) error {
		all := status()
		var down []string
		var why error
		for _, s := range all {
			if s.State == stores.Open {
				down, why = append(down, s.Store), s.LastError
			}
		}
		if len(down) == 0 || len(down) < len(all) {
			return nil
		}
		const named = 5
		return fmt.Errorf("none of %d stores answers, the first being %s: %w", len(down), strings.Join(down[:min(named, len(down))], ", "), why)
	}
}
