package console

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/admin"
)

const (
	actsAtOnce = 8
	actsKept   = 100 // that have ended
)

// acts are changes of many messages. They go on in the background, whether or not their reader stays.
type acts struct {
	mu     sync.Mutex
	closed bool
	last   int
	list   []*operation // the latest last
}

// An operation is one act on many messages.
type operation struct {
	ID      int
	Store   string
	slug    string
	Verb    verb
	Actor   string
	What    string // the messages, in words
	Counted int    // that matched when it was asked for
	Begun   time.Time

	mu     sync.Mutex
	result admin.Result
	err    error
	ended  time.Time
}

// An operationState is how far an operation has come.
type operationState struct {
	*operation
	Result admin.Result
	Err    error
	Ended  time.Time
}

func (o *operation) state() operationState {
	o.mu.Lock()
	defer o.mu.Unlock()
	return operationState{o, o.result, o.err, o.ended}
}

// Running says whether it goes on.
func (s operationState) Running() bool { return s.Ended.IsZero() }

// Percent is how much of what was counted has been matched, at most 100.
func (s operationState) Percent() int {
	if s.Counted == 0 {
		return 0
	}
	return min(100, 100*s.Result.Matched/s.Counted)
}

func (o *operation) progress(r admin.Result) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.result = r
}

func (o *operation) end(r admin.Result, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.result, o.err, o.ended = r, err, time.Now()
}

var errBusy = errors.New("too many acts go on at once; wait until one has ended")

// start begins an operation.
func (a *acts) start(c *Console, p *place, o *operation, do func(ctx context.Context, progress func(admin.Result)) (admin.Result, error)) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	running := 0
	for _, known := range a.list {
		if known.state().Running() {
			running++
		}
	}
	switch {
	case a.closed:
		return errClosed
	case running >= actsAtOnce:
		return errBusy
	}
	if len(a.list) > actsKept {
		if first := slices.IndexFunc(a.list, func(o *operation) bool { return !o.state().Running() }); first >= 0 {
			a.list = slices.Delete(a.list, first, first+1)
		}
	}
	a.last++
	o.ID, o.Begun, o.Store, o.slug = a.last, time.Now(), p.ID(), p.slug
	a.list = append(a.list, o)
	c.work.Go(func() {
		r, err := do(c.ctx, func(r admin.Result) { o.progress(r); c.watchers.tell() })
		o.end(r, err)
		c.looks.forget(p)
		c.watchers.tell()
		c.logger.Info("An act of the console has ended", map[string]any{
			"store": o.Store, "act": string(o.Verb), "actor": o.Actor, "messages": r.Done, "err": err,
		})
	})
	return nil
}

func (a *acts) all() []operationState {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := make([]operationState, len(a.list))
	for i, o := range a.list {
		list[len(list)-1-i] = o.state()
	}
	return list
}

func (a *acts) find(id int) (operationState, bool) {
	for _, o := range a.all() {
		if o.ID == id {
			return o, true
		}
	}
	return operationState{}, false
}

func (a *acts) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
}

// A verb is what can be done with messages.
type verb string

// An actKind is a verb with all that it needs.
type actKind struct {
	Verb     verb
	Do, Done string // as on a button, and of messages
	Right    Right
	On       outbox.Status // what it is done to
	Warning  string
	run      func(a *admin.Admin, ctx context.Context, p admin.DelayParams) (admin.Result, error)
}

var actKinds = []actKind{
	{"requeue", "Requeue", "requeued", Requeue, outbox.Failed, "", simple((*admin.Admin).Requeue)},
	{"discard", "Discard", "discarded", Discard, outbox.Failed, "They are deleted for good.", simple((*admin.Admin).Discard)},
	{"cancel", "Cancel", "cancelled", Cancel, outbox.Ready, "They become dead letters, which can be requeued. Joins count them as failed.", simple((*admin.Admin).Cancel)},
	{"delay", "Delay", "delayed", Delay, outbox.Ready, "", (*admin.Admin).Delay},
}

// simple is an act that needs no more than to know which messages.
func simple(act func(*admin.Admin, context.Context, admin.ActParams) (admin.Result, error)) func(*admin.Admin, context.Context, admin.DelayParams) (admin.Result, error) {
	return func(a *admin.Admin, ctx context.Context, p admin.DelayParams) (admin.Result, error) {
		return act(a, ctx, p.ActParams)
	}
}

// Delays says whether it needs to know for how long.
func (k actKind) Delays() bool { return k.Verb == "delay" }

// Noun is what it is done to.
func (k actKind) Noun() string {
	if k.On == outbox.Failed {
		return "dead letters"
	}
	return "ready messages"
}

// From is the page on which it was chosen.
func (k actKind) From() string {
	if k.On == outbox.Failed {
		return "dead"
	}
	return "search"
}

func actOf(v verb) (actKind, bool) {
	for _, k := range actKinds {
		if k.Verb == v {
			return k, true
		}
	}
	return actKind{}, false
}
