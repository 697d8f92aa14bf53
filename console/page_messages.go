package console

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/admin"
	"github.com/incursa/watermill-outbox/inbox"
	"github.com/incursa/watermill-outbox/internal/field"
)

const (
	pageSize  = 50
	examined  = 100_000  // messages, for one page of a search
	stepSize  = 2000     // of them, between two looks at how far it has come
	mostShown = 64 << 10 // of a payload, in bytes
)

// A found is how far a search has come.
type found struct {
	Messages []admin.Message
	Next     admin.Mark
	Examined int
}

// search looks for a page of messages in steps, each of which it tells.
func search(ctx context.Context, list func(context.Context, admin.ListParams) (admin.List, error), params admin.ListParams, tell func(found)) (found, error) {
	var all found
	for {
		params.Limit, params.Examine = pageSize-len(all.Messages), stepSize
		if len(all.Messages) == 0 && all.Examined == 0 {
			params.Examine = 1000 // the first page of a list that nothing is asked of is here at once
		}
		step, err := list(ctx, params)
		if err != nil {
			return all, err
		}
		all = found{slices.Concat(all.Messages, step.Messages), step.Next, all.Examined + step.Examined}
		if step.Next.IsZero() || len(all.Messages) >= pageSize || all.Examined >= examined {
			return all, nil
		}
		params.After = step.Next
		tell(all)
		nextStep(ctx)
	}
}

// messages is a page with a filter and what it finds.
type messages struct {
	Form  filterForm
	Found found
	State answer
	Queue bool // that of the inbox
}

// Self lets templates pass it on where it is embedded.
func (m messages) Self() messages { return m }

// find reads the filter of the request, and what it finds. It returns false if it has already answered.
func (v *visit) find(name string, list func(context.Context, admin.ListParams) (admin.List, error)) (m messages, ok bool) {
	q := v.r.URL.Query()
	m.Form = readFilter(q)
	filter, err := m.Form.filter(time.Now())
	if err == nil {
		var after admin.Mark
		if after, err = admin.ParseMark(q.Get("after")); err == nil {
			key := name + "\x00" + string(m.Form.Query()) + "\x00" + after.String()
			m.Found, m.State = ask(v, key, func(ctx context.Context, tell func(found)) (found, error) {
				return search(ctx, list, admin.ListParams{Filter: filter, After: after}, tell)
			})
			err = m.State.Err
		} else {
			err = field.Rename("Mark", "after", err)
		}
	}
	if err != nil {
		v.fail(err)
		return m, false
	}
	return m, true
}

func (v *visit) searchPage() {
	m, ok := v.find("search", v.place.admin.Messages)
	if !ok {
		return
	}
	body := struct {
		messages
		Acts []actKind
	}{messages: m}
	if !m.Form.IsZero() && (len(m.Form.States) == 0 || m.Form.Has(outbox.Ready.String())) {
		body.Acts = v.actsAllowed(outbox.Ready)
	}
	v.render("search", &page{Title: "Messages", At: "search", Busy: m.State.Running, Body: body})
}

// inboxPage searches the queue of the inbox, and looks up an entry by its key.
func (v *visit) inboxPage() {
	q := v.r.URL.Query()
	body := struct {
		messages
		Key   inbox.Key
		Entry *inbox.Entry
		None  bool // there is no inbox
	}{Key: inbox.Key{Source: q.Get("source"), MessageID: q.Get("message"), Handler: q.Get("handler")}}
	ctx, cancel := v.context()
	defer cancel()
	var entries []inbox.Entry
	_, err := v.place.queue.Health(ctx)
	if err == nil && body.Key != (inbox.Key{}) {
		entries, err = v.place.inbox.Get(ctx, body.Key)
	}
	if body.None = errors.Is(err, outbox.ErrSchema); err != nil && !body.None {
		v.fail(err)
		return
	}
	if len(entries) > 0 {
		body.Entry = &entries[0]
	}
	if !body.None {
		var ok bool
		if body.messages, ok = v.find("inbox", v.place.queue.Messages); !ok {
			return
		}
	}
	body.Queue = true
	v.render("inbox", &page{Title: "Inbox", At: "inbox", Busy: body.State.Running, Body: body})
}

// A contents is what is shown of payload and headers.
type contents struct {
	As, Text string
	Cut      int // bytes that are left out
	Headers  []header
	JSON     bool
	Asked    bool // they were asked for
	Allowed  bool
}

type header struct{ Name, Value string }

// messagePage tells all that is known of a message.
func (v *visit) messagePage() {
	ctx, cancel := v.context()
	defer cancel()
	of, queue := v.place.admin, v.r.URL.Query().Has("queue")
	if queue {
		of = v.place.queue
	}
	story, err := v.story(ctx, of, v.r.PathValue("id"))
	if err != nil {
		v.fail(err)
		return
	}
	body := struct {
		*admin.Story
		Contents contents
		Size     int
		Acts     []actKind
		Queue    bool
	}{Story: story, Contents: v.contents(&story.Record.Message), Size: len(story.Record.Payload), Queue: queue}
	if !queue {
		body.Acts = v.actsAllowed(story.Record.Status)
	}
	v.render("message", &page{Title: "Message", At: "search", Body: body})
}

// story reads what is known of the message with an id, as paths have it.
func (v *visit) story(ctx context.Context, of *admin.Admin, name string) (*admin.Story, error) {
	var id outbox.MessageID
	if err := id.UnmarshalText([]byte(name)); err != nil {
		return nil, admin.ErrNotFound
	}
	return of.Story(ctx, id)
}

// contents are shown if they are asked for, if the reader has the right, and as Config.Redact says.
func (v *visit) contents(m *outbox.Message) contents {
	c := contents{As: v.r.URL.Query().Get("contents"), Allowed: v.authorize(Reveal) == nil}
	c.Asked = c.As != ""
	if !c.Asked || !c.Allowed {
		return c
	}
	shown := *m
	shown.Payload, shown.Headers = bytes.Clone(m.Payload), maps.Clone(m.Headers)
	if c.Allowed = v.config.Redact(v.r, &shown); !c.Allowed {
		return c
	}
	for _, name := range slices.Sorted(maps.Keys(shown.Headers)) {
		c.Headers = append(c.Headers, header{name, shown.Headers[name]})
	}
	c.JSON = json.Valid(shown.Payload)
	payload := shown.Payload
	if len(payload) > mostShown {
		payload, c.Cut = payload[:mostShown], len(payload)-mostShown
	}
	switch {
	case c.As == "hex":
		c.Text = hex.Dump(payload)
	case c.As == "json" && c.JSON && c.Cut == 0:
		var pretty bytes.Buffer
		_ = json.Indent(&pretty, payload, "", "  ") // it is valid
		c.Text = pretty.String()
	case !utf8.Valid(payload) && c.Cut == 0:
		c.As, c.Text = "hex", hex.Dump(payload)
	default:
		c.As, c.Text = "text", string(bytes.ToValidUTF8(payload, []byte("�")))
	}
	return c
}
