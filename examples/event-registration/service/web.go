package service

import (
	"errors"
	"net/http"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/console"
	"github.com/incursa/watermill-outbox/examples/event-registration/httpapi"
	"github.com/incursa/watermill-outbox/examples/event-registration/tracing"
	"github.com/incursa/watermill-outbox/forwarder"
	"github.com/incursa/watermill-outbox/stores"
)

// handler is the API, or without the join-service what it answers to those who run the service, and the console.
func (s *Service) handler(web http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/console/", web)
	if s.api == nil {
		mux.Handle("/", httpapi.Operations(s.db.PingContext, s.metrics))
		return mux
	}
	mux.Handle("/", otelhttp.NewHandler(s.api, "request", otelhttp.WithTracerProvider(s.config.TracerProvider),
		otelhttp.WithPropagators(tracing.Propagation), otelhttp.WithSpanNameFormatter(func(_ string, r *http.Request) string { return r.Pattern })))
	return mux
}

// openConsole opens the console on the outboxes and inboxes of the services here. Admins who have signed in on the page may use
// it; what is in a message stays hidden.
func (s *Service) openConsole(forwarders map[string]*forwarder.Forwarder) (*console.Console, error) {
	var all []*stores.Store
	for _, p := range s.parts {
		for _, d := range p.queues() {
			d.Dialect = s.db.Dialect
			store, err := stores.New(s.db.DB, d, outbox.Config{}, s.log)
			if err != nil {
				return nil, err
			}
			all = append(all, store)
		}
	}
	provider, err := stores.NewStatic(all...)
	if err != nil {
		return nil, err
	}
	return console.New(console.Config{
		Provider: provider, Forwarders: forwarders, Prefix: "/console", AllowChanges: true,
		Authorize: func(r *http.Request, _ console.Action) error {
			actor, err := s.config.Auth.PageActor(r)
			switch {
			case err != nil:
				return console.ErrUnauthenticated
			case !actor.Admin:
				return errors.New("not an admin")
			}
			return nil
		},
		Actor: func(r *http.Request) string {
			actor, err := s.config.Auth.PageActor(r)
			if err != nil {
				return "nobody"
			}
			return actor.UserID
		},
	}, s.log)
}

// queues are the service's outbox, if it sends anything, and its inbox.
func (p part) queues() (out []stores.Database) {
	if p.topic != "" {
		out = append(out, stores.Database{ID: string(p.name), Table: p.table})
	}
	return append(out, stores.Database{ID: string(p.name) + " inbox", Table: p.inbox})
}
