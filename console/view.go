package console

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"html/template"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/admin"
	"github.com/incursa/watermill-outbox/inbox"
	"github.com/incursa/watermill-outbox/join"
)

//go:embed pages assets
var files embed.FS

// templates are the pages by name, each within the layout.
var templates = func() map[string]*template.Template {
	layout := template.Must(template.New("layout").Funcs(template.FuncMap{
		"number": number, "upTo": upTo, "counted": counted, "rate": rate, "span": span, "ago": ago, "clock": clock, "size": size,
		"line": firstLine, "tone": tone, "states": func() []outbox.Status { return states },
		"sub": func(a, b int) int { return a - b }, "number64": func(n int64) string { return number(int(n)) },
	}).ParseFS(files, "pages/layout.html", "pages/parts.html"))
	all := map[string]*template.Template{}
	names, err := fs.Glob(files, "pages/*.html")
	if err != nil {
		panic(err) // the pattern is ours
	}
	for _, name := range names {
		all[strings.TrimSuffix(path.Base(name), ".html")] = template.Must(template.Must(layout.Clone()).ParseFS(files, name))
	}
	return all
}()

// assetVersion changes with the files, so that browsers may keep them.
var assetVersion = func() string {
	hash := sha256.New()
	for _, name := range []string{"console.css", "console.js", "icon.svg"} {
		text, err := files.ReadFile("assets/" + name)
		if err != nil {
			panic(err) // they are embedded
		}
		hash.Write(text)
	}
	return hex.EncodeToString(hash.Sum(nil)[:6])
}()

func (v *visit) asset() {
	text, err := files.ReadFile("assets/" + v.r.PathValue("file"))
	if err != nil {
		v.notFound("There is no such file.")
		return
	}
	kinds := map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
	v.w.Header().Set("Content-Type", kinds[path.Ext(v.r.PathValue("file"))])
	v.w.Header().Set("Cache-Control", "private, max-age=31536000, immutable")
	_, _ = v.w.Write(text) // who asked may have left
}

// A visit is a request and its answer, in a store or in none.
type visit struct {
	*Console
	w     http.ResponseWriter
	r     *http.Request
	place *place
	begun time.Time
}

// A page is what the layout and each template know.
type page struct {
	v      *visit
	Title  string
	At     string // which entry of the navigation
	Live   bool   // it is read again when there is news
	Busy   bool   // it is read again until it is complete
	Status int
	Body   any
	Error  string
}

// Store is the store's name, or empty.
func (p *page) Store() string {
	if p.v.place == nil {
		return ""
	}
	return p.v.place.ID()
}

// Root is a path outside of stores.
func (p *page) Root(parts ...string) string { return p.v.config.Prefix + "/" + escaped(parts) }

// Path is a path in the store.
func (p *page) Path(parts ...string) string {
	return p.v.config.Prefix + "/s/" + p.v.place.slug + "/" + escaped(parts)
}

func escaped(parts []string) string {
	for i, part := range parts {
		parts[i] = url.PathEscape(part)
	}
	return strings.Join(parts, "/")
}

// An entry of the navigation.
type entry struct {
	Path, Name string
	Current    bool
	Count      int
}

// Entry is one in the store.
func (p *page) Entry(at, name string, count ...int) entry {
	e := entry{Path: p.Path(at), Name: name, Current: p.At == at}
	if at == "topics" {
		e.Path = p.Path()
	}
	for _, n := range count {
		e.Count += n
	}
	return e
}

// List is what the template of that name needs.
func (p *page) List(m messages) any {
	return struct {
		Page  *page
		Found messages
		Queue bool
	}{p, m, m.Queue}
}

// JoinTable is what the template of that name needs.
func (p *page) JoinTable(id, label, empty string, t *joinTable) any {
	return struct {
		Page             *page
		ID, Label, Empty string
		*joinTable
	}{p, id, label, empty, t}
}

// Node is what the template of that name needs.
func (p *page) Node(n *node) any {
	return struct {
		Page *page
		Node *node
	}{p, n}
}

// Asset is the path of a file.
func (p *page) Asset(name string) string { return p.Root("assets", name) + "?v=" + assetVersion }

// Many says whether there are several stores.
func (p *page) Many() bool { return len(p.v.places.all()) != 1 }

// HasForwarders says whether there are any.
func (p *page) HasForwarders() bool { return len(p.v.config.Forwarders) > 0 }

// May says whether the reader has a right in the store.
func (p *page) May(right Right) bool { return p.v.authorize(right) == nil }

// ReadOnly says whether nobody can change anything.
func (p *page) ReadOnly() bool { return !p.v.config.AllowChanges }

// Actor is who reads.
func (p *page) Actor() string { return p.v.config.Actor(p.v.r) }

// Shown is an error as it may be shown.
func (p *page) Shown(text string) string { return p.v.config.RedactError(text) }

// Trouble is the number of dead letters in the store, as far as it is known.
func (p *page) Trouble() int {
	if s := p.v.place.history.latest(); s != nil {
		return s.Health.Failed
	}
	return 0
}

// With is the address of this page with other values of its query: names and values in turn.
func (p *page) With(pairs ...string) string {
	q := p.v.r.URL.Query()
	for i := 0; i+1 < len(pairs); i += 2 {
		q.Del(pairs[i])
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	return p.v.r.URL.EscapedPath() + "?" + q.Encode()
}

func (v *visit) render(name string, p *page) {
	p.v = v
	var text bytes.Buffer
	if err := templates[name].ExecuteTemplate(&text, "layout", p); err != nil {
		v.logger.Error("The console could not make a page", err, map[string]any{"page": name})
		http.Error(v.w, "this page could not be made; the log says why", http.StatusInternalServerError)
		return
	}
	v.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	v.w.Header().Set("Content-Length", strconv.Itoa(text.Len()))
	if p.Status != 0 {
		v.w.WriteHeader(p.Status)
	}
	_, _ = v.w.Write(text.Bytes()) // who asked may have left
}

func (v *visit) notFound(what string) {
	v.render("error", &page{Title: "Not found", Status: http.StatusNotFound, Error: what})
}

// fail says what is wrong: with the request, or with the database.
func (v *visit) fail(err error) {
	p := &page{Title: "This did not work", Status: http.StatusServiceUnavailable}
	var bad *outbox.FieldError
	switch {
	case errors.Is(err, admin.ErrNotFound), errors.Is(err, join.ErrNotFound), errors.Is(err, inbox.ErrNotFound):
		p.Status = http.StatusNotFound
	case errors.As(err, &bad):
		p.Status = http.StatusBadRequest
	case errors.Is(err, errHidden):
		p.Status = http.StatusForbidden
	case errors.Is(err, outbox.ErrNotBlocked), errors.Is(err, join.ErrEnded), errors.Is(err, admin.ErrNotFailed),
		errors.Is(err, errNotText), errors.Is(err, errTooLong):
		p.Status = http.StatusConflict
	}
	p.Live = p.Status == http.StatusServiceUnavailable && v.r.Method == http.MethodGet // it is read again until it works
	p.Error = v.config.RedactError(v.explain(err))
	v.render("error", p)
}

// explain adds what an error means here.
func (v *visit) explain(err error) string {
	var bad *outbox.FieldError
	switch {
	case errors.As(err, &bad): // a value of the address, by its own name
		return strings.ToLower(bad.Field[strings.LastIndex(bad.Field, ".")+1:]) + ": " + bad.Reason
	case errors.Is(err, context.DeadlineExceeded):
		return "The database did not answer in time."
	case errors.Is(err, outbox.ErrSchema):
		return "Tables of the outbox are missing here, or are of another version; the page of the schema says which. " + err.Error()
	}
	return err.Error()
}

// queryTimeout is how long a page waits for a database.
const queryTimeout = 10 * time.Second

// context is that of the short queries of a page.
func (v *visit) context() (context.Context, context.CancelFunc) {
	return context.WithTimeout(v.r.Context(), queryTimeout)
}
