package console

import (
	"errors"
	"net/http"
	"strings"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/forwarder"
	"github.com/incursa/watermill-outbox/internal/field"
	"github.com/incursa/watermill-outbox/stores"
)

// A Right is what somebody wants to do.
type Right string

// The rights. All but View and Reveal change something.
const (
	View    Right = "view"    // see everything but payloads and headers
	Reveal  Right = "reveal"  // see payloads and headers, as far as Config.Redact shows them
	Requeue Right = "requeue" // make dead letters ready again
	Discard Right = "discard" // delete dead letters
	Cancel  Right = "cancel"  // fail ready messages
	Delay   Right = "delay"   // make ready messages due later
	Edit    Right = "edit"    // put a changed copy in the place of a dead letter; it needs Reveal, too
	Pause   Right = "pause"   // pause and resume topics
	Streams Right = "streams" // resume, skip or discard blocked streams
	Joins   Right = "joins"   // seal and cancel joins
	Groups  Right = "groups"  // forget consumer groups, requeue and discard their dead letters
)

// An Action is what a request wants to do, and where.
type Action struct {
	Right Right

	// Store is the id of the store. It is empty for the console itself: the list of stores, which then has only those that may
	// be viewed, the activity, and the files that pages need.
	Store string
}

// ErrUnauthenticated is returned by Config.Authorize for somebody who is not known: the answer is then 401 instead of 403.
var ErrUnauthenticated = errors.New("console: nobody is signed in")

// Config configures a Console.
type Config struct {
	// Provider has the stores. For a single outbox, use stores.NewStatic. Required.
	Provider stores.Provider

	// Authorize returns nil if the request may do what it wants, and otherwise why not, which is logged and not shown. It is
	// called for each request, and for each button that a page may have: keep it quick. Required.
	Authorize func(r *http.Request, a Action) error

	// AllowChanges lets those change something whom Authorize lets. Defaults to false: the console is read-only.
	AllowChanges bool

	// Actor names who makes the request, for logs and the audit. Defaults to "console".
	Actor func(r *http.Request) string

	// Redact decides what is shown of a message to whoever asks for its contents: it may change Payload and Headers, and
	// returns false to hide both. Defaults to hiding them.
	Redact func(r *http.Request, m *outbox.Message) bool

	// RedactError returns what is shown of an error, of a message or of the database. Defaults to all of it.
	RedactError func(text string) string

	// Prefix is the path under which the console is mounted, as in "/outbox". Defaults to none.
	Prefix string

	// InboxTable is the table of the inbox in each store. Defaults to that of inbox.Config.
	InboxTable string

	// Status is that of a stores.Subscriber in this process, for the page of stores. Defaults to nothing.
	Status func() []stores.StoreStatus

	// Forwarders are those of this process, by name. Defaults to none.
	Forwarders map[string]*forwarder.Forwarder

	// SampleInterval is how often each store is looked at for rates, depths and charts, at least 1 s. Defaults to 10 s.
	SampleInterval time.Duration

	// MaxWatchers is how many pages may be told about changes at once, at least 1; others are not told. Defaults to 100.
	MaxWatchers int
}

func (c *Config) setDefaults() {
	field.Default(&c.SampleInterval, 10*time.Second)
	field.Default(&c.MaxWatchers, 100)
	if c.Actor == nil {
		c.Actor = func(*http.Request) string { return "console" }
	}
	if c.Redact == nil {
		c.Redact = func(*http.Request, *outbox.Message) bool { return false }
	}
	if c.RedactError == nil {
		c.RedactError = func(text string) string { return text }
	}
}

func (c *Config) validate() error {
	switch {
	case c.Provider == nil:
		return field.Bad("Config.Provider", "is missing; pass what stores.NewStatic or stores.NewDynamic returns")
	case c.Authorize == nil:
		return field.Bad("Config.Authorize", "is missing: it says who may do what, and there is no default")
	case c.Prefix != "" && (!strings.HasPrefix(c.Prefix, "/") || strings.HasSuffix(c.Prefix, "/") || strings.ContainsAny(c.Prefix, "?#%{} \t\r\n") || strings.Contains(c.Prefix, "//")):
		return field.Bad("Config.Prefix", "%q is not a path that begins with / and ends without", c.Prefix)
	case c.SampleInterval < time.Second:
		return field.Bad("Config.SampleInterval", "%v is less than 1 s", c.SampleInterval)
	case c.MaxWatchers < 1:
		return field.Bad("Config.MaxWatchers", "%d is less than 1", c.MaxWatchers)
	}
	for name, f := range c.Forwarders {
		if f == nil {
			return field.Bad("Config.Forwarders", "%q is nil", name)
		}
	}
	return nil
}
