package console

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/incursa/watermill-outbox/internal/field"
)

// A Console is the handler. It is safe for concurrent use.
type Console struct {
	config  Config
	logger  watermill.LoggerAdapter
	handler http.Handler
	routes  []string // for tests

	places   places
	looks    looks
	acts     acts
	watchers watchers

	ctx  context.Context //nolint:containedctx // of what goes on after a request, until Close
	stop context.CancelFunc
	work sync.WaitGroup
}

// New returns a console, which begins to look at its stores. A nil logger logs nothing. It returns an *outbox.FieldError that
// names a bad field.
func New(config Config, logger watermill.LoggerAdapter) (*Console, error) {
	config.setDefaults()
	if err := field.In("console", config.validate()); err != nil {
		return nil, err
	}
	if logger == nil {
		logger = watermill.NopLogger{}
	}
	ctx, stop := context.WithCancel(context.Background())
	c := &Console{config: config, logger: logger, ctx: ctx, stop: stop}
	c.places.console = c
	c.watchers.most = config.MaxWatchers
	c.handler = c.protect(c.mux())
	c.work.Go(c.sample)
	return c, nil
}

// Close ends what goes on in the background. An act on many messages ends after the batch that it is at: what it has done stays
// done. Close is idempotent.
func (c *Console) Close() error {
	c.stop()
	c.looks.close()
	c.acts.close()
	c.work.Wait()
	return nil
}

// ServeHTTP implements http.Handler.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) { c.handler.ServeHTTP(w, r) }

// mux has all that there is. A page of a store is below /s/ and the store's name there.
func (c *Console) mux() http.Handler {
	mux := http.NewServeMux()
	handle := func(method, path string, serve func(*visit)) {
		route := method + " " + c.config.Prefix + path
		c.routes = append(c.routes, route)
		mux.HandleFunc(route, func(w http.ResponseWriter, r *http.Request) { c.serve(w, r, serve) })
	}
	handle("GET", "/{$}", (*visit).storesPage)
	handle("GET", "/activity", (*visit).activityPage)
	handle("GET", "/activity/{act}", (*visit).actPage)
	handle("GET", "/forwarders", (*visit).forwardersPage)
	handle("GET", "/events", (*visit).events)
	handle("GET", "/assets/{file}", (*visit).asset)
	for path, serve := range map[string]func(*visit){
		"{$}": (*visit).topicsPage, "topic": (*visit).topicPage, "search": (*visit).searchPage, "message/{id}": (*visit).messagePage,
		"dead": (*visit).deadPage, "act": (*visit).confirmPage, "joins": (*visit).joinsPage, "join/{id}": (*visit).joinPage,
		"streams": (*visit).streamsPage, "log": (*visit).logPage, "log/dead": (*visit).groupDeadPage, "inbox": (*visit).inboxPage,
		"workers": (*visit).workersPage, "schema": (*visit).schemaPage,
		"audit": (*visit).auditPage, "edit/{id}": (*visit).editPage,
	} {
		handle("GET", "/s/{store}/"+path, inStore(serve))
	}
	for path, serve := range map[string]func(*visit){
		"act": (*visit).act, "stream": (*visit).actOnStream, "join": (*visit).actOnJoin, "group": (*visit).actOnGroup,
		"pause": (*visit).pauseTopic, "edit/{id}": (*visit).edit,
	} {
		handle("POST", "/s/{store}/"+path, inStore(serve))
	}
	if c.config.Prefix != "" {
		mux.Handle("GET "+c.config.Prefix, http.RedirectHandler(c.config.Prefix+"/", http.StatusSeeOther))
	}
	return mux
}

// protect puts the headers on every answer, and refuses forms of other sites.
func (c *Console) protect(next http.Handler) http.Handler {
	origin := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "+
			"form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "same-origin") // with no-referrer, a form's Origin would be null and no protection could tell it
		h.Set("Cache-Control", "no-store")
		if err := origin.Check(r); err != nil {
			c.logger.Info("The console refused a form of another site", watermill.LogFields{"path": r.URL.Path, "reason": err.Error()})
			http.Error(w, "this form was sent by another site", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// serve is for those who may view the console.
func (c *Console) serve(w http.ResponseWriter, r *http.Request, f func(*visit)) {
	v := &visit{Console: c, w: w, r: r, begun: time.Now()}
	if err := c.config.Authorize(r, Action{Right: View}); err != nil {
		v.refuse(Action{Right: View}, err)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	f(v)
}

// maxForm is more than any form of the console has, in bytes, with the contents of a message that is edited.
const maxForm = 8 << 20

// inStore is for those who may view the store of the path.
func inStore(f func(*visit)) func(*visit) {
	return func(v *visit) {
		v.place = v.places.named(v.r.PathValue("store"))
		if v.place == nil {
			v.notFound("There is no such store.")
			return
		}
		if err := v.authorize(View); err != nil {
			v.refuse(Action{View, v.place.ID()}, err)
			return
		}
		f(v)
	}
}

// authorize asks whether the request may do something in its store.
func (v *visit) authorize(right Right) error {
	if right != View && right != Reveal && !v.config.AllowChanges {
		return errReadOnly
	}
	return v.config.Authorize(v.r, Action{right, v.place.ID()})
}

var errReadOnly = errors.New("the console is read-only: Config.AllowChanges is not set")

func (v *visit) refuse(a Action, err error) {
	v.logger.Info("The console refused a request", watermill.LogFields{
		"right": string(a.Right), "store": a.Store, "actor": v.config.Actor(v.r), "reason": err.Error(),
	})
	status, text := http.StatusForbidden, "you may not do this"
	switch {
	case errors.Is(err, ErrUnauthenticated):
		status, text = http.StatusUnauthorized, "sign in first"
	case errors.Is(err, errReadOnly):
		text = "the console is read-only"
	}
	http.Error(v.w, text, status)
}
