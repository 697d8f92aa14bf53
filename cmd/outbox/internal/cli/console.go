package cli

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/spf13/cobra"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/console"
	outboxstores "github.com/incursa/watermill-outbox/stores"
)

// consoleFlags are those of the command console.
type consoleFlags struct {
	listen, token, stores string
	withoutToken          bool
	allowChanges          bool
	payloads              bool
}

func (a *app) consoleCommand() *cobra.Command {
	f := &consoleFlags{}
	c := &cobra.Command{Use: "console", Short: "Serve the web console until it is interrupted", Args: arguments(cobra.NoArgs),
		Long: `Serve the web console until it is interrupted. It prints an address that lets one browser in, once. It is read-only unless
--allow-changes is set, and shows no payloads and headers unless --payloads is set.`}
	c.RunE = func(c *cobra.Command, _ []string) error {
		_, _, err := net.SplitHostPort(f.listen)
		switch {
		case a.dryRun:
			return usage("%s has no --dry-run", c.CommandPath())
		case err != nil:
			return usage("--listen %s: %v; write host:port", f.listen, err)
		case f.token != "" && f.withoutToken:
			return usage("--token and --without-token exclude each other")
		case f.token == "" && !f.withoutToken && !isLoopback(f.listen):
			return usage("--listen %s is reached from other machines: say with --token or --without-token who may look", f.listen)
		}
		return a.serveConsole(c.Context(), f)
	}
	flags := c.Flags()
	flags.StringVar(&f.listen, "listen", "127.0.0.1:8420", "the address to listen at")
	flags.StringVar(&f.stores, "stores", "", "the file of several databases, as of 'outbox stores'")
	flags.StringVar(&f.token, "token", "", "what lets a browser in, any number of times (default a new one, once)")
	flags.BoolVar(&f.withoutToken, "without-token", false, "let everybody in who reaches the address")
	flags.BoolVar(&f.allowChanges, "allow-changes", false, "let those who are in change something")
	flags.BoolVar(&f.payloads, "payloads", false, "show payloads and headers to those who ask for them")
	return c
}

func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// serveConsole ends without an error when it is interrupted.
func (a *app) serveConsole(ctx context.Context, f *consoleFlags) (err error) {
	opened, err := a.openStores(ctx, f.stores)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, opened.close()) }()
	provider, err := outboxstores.NewStatic(opened.list...)
	if err != nil {
		return usage("--stores: %v", err)
	}
	a.ran = true
	listener, err := net.Listen("tcp", f.listen) //nolint:noctx // it is closed below
	if err != nil {
		return usage("--listen %s: %v", f.listen, err)
	}
	g := newGate(listener.Addr(), f)
	web, err := console.New(console.Config{
		Provider: provider, Authorize: g.authorize, AllowChanges: f.allowChanges, Actor: func(*http.Request) string { return a.actor() },
		Redact: func(*http.Request, *outbox.Message) bool { return f.payloads }, RedactError: opened.redact,
	}, nil)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	g.next = web
	server := &http.Server{Handler: g, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	err = a.render.result(struct {
		Address string `json:"address"`
	}{g.address()}, "The console is at "+g.address())
	if err == nil {
		select {
		case <-ctx.Done():
		case ended := <-served:
			served <- ended // for below
		}
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second) // a browser's spare connection counts as busy for 5 s
	defer cancel()
	err = errors.Join(err, web.Close(), server.Shutdown(limited))
	if ended := <-served; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}

// openStores are databases that were opened, and what errors about them must not show.
type openStores struct {
	list  []*outboxstores.Store
	pools []*sql.DB
	dsns  []string
}

func (o *openStores) close() (err error) {
	for _, db := range o.pools {
		err = errors.Join(err, db.Close())
	}
	return err
}

// redact takes all passwords out of a text.
func (o *openStores) redact(text string) string {
	for _, dsn := range o.dsns {
		text = redactDSN(dsn, text)
	}
	return text
}

// openStores opens those of the file, or the one database of --dsn, which must answer.
func (a *app) openStores(ctx context.Context, file string) (o *openStores, err error) {
	o = &openStores{}
	if file == "" {
		db, err := a.open(ctx, false)
		if err != nil {
			return nil, err
		}
		if err := o.add("outbox", a.source(), db); err != nil {
			return nil, errors.Join(err, o.close())
		}
		return o, nil
	}
	list, err := (&stores{app: a, file: file}).read(ctx)
	if err != nil {
		return nil, err
	}
	for _, entry := range list {
		db, err := a.connect(entry.DSN, false)
		if err != nil {
			return nil, errors.Join(err, o.close())
		}
		if err := o.add(entry.Name, entry.DSN, db); err != nil {
			return nil, errors.Join(err, o.close())
		}
	}
	return o, nil
}

func (o *openStores) add(name, dsn string, db *database) error {
	db.SetMaxOpenConns(4)
	o.pools, o.dsns = append(o.pools, db.DB), append(o.dsns, dsn)
	s, err := outboxstores.New(db.DB, outboxstores.Database{ID: name, Dialect: db.dialect, Schema: db.app.schema, Table: db.app.table}, outbox.Config{}, nil)
	o.list = append(o.list, s)
	return err
}

// A gate lets browsers in that have a token.
type gate struct {
	next       http.Handler
	at         net.Addr
	open, once bool
	token      string
	cookie     string // its name: cookies do not tell ports apart

	mu      sync.Mutex
	session string // of a browser that is in
	used    bool
}

func newGate(at net.Addr, f *consoleFlags) *gate {
	g := &gate{at: at, open: f.withoutToken, token: f.token, session: rand.Text()}
	if g.token == "" {
		g.token, g.once = rand.Text(), true
	}
	_, port, _ := net.SplitHostPort(at.String())
	g.cookie = "outbox_console_" + port
	return g
}

// address is what lets a browser in.
func (g *gate) address() string {
	if g.open {
		return "http://" + g.at.String() + "/"
	}
	return "http://" + g.at.String() + "/?" + url.Values{"token": {g.token}}.Encode()
}

// ServeHTTP takes a token for a cookie.
func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token := r.URL.Query().Get("token")
	if r.Method == http.MethodGet && r.URL.Path == "/" && token != "" && g.admit(token) {
		http.SetCookie(w, &http.Cookie{Name: g.cookie, Value: g.session, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("Referrer-Policy", "no-referrer")
		http.Redirect(w, r, "/", http.StatusSeeOther)
		return
	}
	g.next.ServeHTTP(w, r)
}

func (g *gate) admit(token string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open || g.used || !same(token, g.token) {
		return false
	}
	g.used = g.once
	return true
}

// authorize is for all that the console may do: console.Config.AllowChanges bounds that.
func (g *gate) authorize(r *http.Request, _ console.Action) error {
	if g.open {
		if isLoopback(g.at.String()) && !isLoopback(withPort(r.Host)) {
			return errors.New("the request is for another host: some page has given its own name to this address")
		}
		return nil
	}
	if c, err := r.Cookie(g.cookie); err == nil && same(c.Value, g.session) {
		return nil
	}
	return fmt.Errorf("%w: open the address that 'outbox console' has printed", console.ErrUnauthenticated)
}

func withPort(host string) string {
	if _, _, err := net.SplitHostPort(host); err != nil {
		return net.JoinHostPort(host, "80")
	}
	return host
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
