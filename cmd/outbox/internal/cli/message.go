package cli

import (
	"context"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/admin"
)

// A message is a row of a list of messages.
type message struct {
	ID            string `json:"id"`
	UUID          string `json:"uuid"`
	Topic         string `json:"topic"`
	State         string `json:"state"`
	CorrelationID string `json:"correlation_id,omitempty"`
	StreamKey     string `json:"stream_key,omitempty"`
	RetryCount    int    `json:"retry_count"`
	Size          int    `json:"size,omitempty"` // of payload and headers
	CreatedAt     string `json:"created_at"`
	NextAttemptAt string `json:"next_attempt_at,omitempty"`
	EndedAt       string `json:"ended_at,omitempty"`
	EndedBy       string `json:"ended_by,omitempty"`
	LastError     string `json:"last_error,omitempty"`

	from admin.Message
}

func newMessage(m admin.Message) message {
	return message{m.ID.String(), m.UUID, m.Topic, m.Status.String(), m.CorrelationID, m.StreamKey, m.RetryCount, m.Size,
		moment(m.CreatedAt), moment(m.NextAttemptAt), moment(m.EndedAt), m.EndedBy, m.LastError, m}
}

func (m message) cells() []string {
	return []string{m.ID, m.Topic, m.State, m.UUID, clock(m.from.CreatedAt), short(m.LastError)}
}

// A letter is a dead letter: what matters is when it failed, and why.
type letter struct{ message }

func (l letter) cells() []string {
	return []string{l.ID, l.Topic, l.UUID, clock(l.from.EndedAt), number(l.RetryCount), short(l.LastError)}
}

// A next ends a page.
type next struct {
	Next     string `json:"next"`
	Examined int    `json:"examined"`
}

// pageFlags are the flags of lists.
type pageFlags struct {
	filterFlags
	limit, examine int
	after          string
}

func (p *pageFlags) add(c *cobra.Command, verb string) {
	p.filterFlags.add(c, verb)
	limited(c, &p.limit, 20, "the most messages to list, 1 to 1,000")
	c.Flags().StringVar(&p.after, "after", "", "where the page before ended, as it says")
	p.examine = 100_000
	c.Flags().Var(&bounded{&p.examine, math.MaxInt}, "examine", "the most messages to look at")
}

func (p *pageFlags) params(now time.Time) (admin.ListParams, error) {
	filter, err := p.read(now)
	if err != nil {
		return admin.ListParams{}, err
	}
	after, err := admin.ParseMark(p.after)
	if err != nil {
		return admin.ListParams{}, usage("--after %q is not what a page ended with", p.after)
	}
	return admin.ListParams{Filter: filter, After: after, Limit: p.limit, Examine: p.examine}, nil
}

// more says how to go on after a page: to programs beside it, so that all lines of a list are alike.
func (a *app) more(page admin.List) error {
	if page.Next.IsZero() {
		return nil
	}
	if a.render.json {
		return (&renderer{a.Err, true}).line(next{page.Next.String(), page.Examined})
	}
	return a.render.say("\n%s looked at. More: the same command with --after %s", counted(page.Examined, "message was", "messages were"), page.Next)
}

func (a *app) listMessages(ctx context.Context, of *admin.Admin, flags *pageFlags) error {
	params, err := flags.params(a.Now())
	if err != nil {
		return err
	}
	page, err := of.Messages(ctx, params)
	if err != nil {
		return err
	}
	var messages []message
	for _, m := range page.Messages {
		messages = append(messages, newMessage(m))
	}
	if err := list(a.render, "ID, TOPIC, STATE, UUID, PUBLISHED, LAST ERROR", messages, flags.none("message")); err != nil {
		return err
	}
	return a.more(page)
}

func (a *app) messageCommand() *cobra.Command {
	var flags pageFlags
	c := a.action(&cobra.Command{Use: "list", Short: "List messages, the most recently published first", Args: arguments(cobra.NoArgs)},
		func(ctx context.Context, db *database, _ []string) error {
			of, err := db.admin()
			if err != nil {
				return err
			}
			return a.listMessages(ctx, of, &flags)
		})
	flags.add(c, "were published")
	flags.addStates(c)
	cancel := &act{app: a, verb: "Cancel", past: "cancelled", do: (*admin.Admin).Cancel, ready: true, under: "message"}
	return group("message", "List, show, publish, cancel and delay messages", c, a.showCommand(), a.publishCommand(),
		cancel.command("cancel [ID...]", "Fail ready messages, by ids or by a filter"), a.delayCommand())
}

// publishing are the flags of publish.
type publishing struct {
	message       outbox.Message
	headers       []string
	payload, file string
	log           string
	delay, ttl    age
}

func (a *app) publishCommand() *cobra.Command {
	var p publishing
	c := a.action(&cobra.Command{Use: "publish TOPIC", Short: "Publish a message", Args: arguments(cobra.ExactArgs(1)),
		Example: `  outbox message publish orders --payload '{"id": 7}' --header tenant=acme
  outbox message publish orders --file order.json --stream customer-9 --delay 5m`},
		func(ctx context.Context, db *database, args []string) error {
			p.message.Topic = args[0]
			return a.publish(ctx, db, &p)
		})
	flags := c.Flags()
	flags.StringVar(&p.payload, "payload", "", "the payload")
	flags.StringVar(&p.file, "file", "", "a file with the payload, or - for the input")
	flags.StringArrayVar(&p.headers, "header", nil, "a header: name=value")
	flags.StringVar(&p.message.UUID, "uuid", "", "Watermill's UUID (default a new one)")
	flags.StringVar(&p.message.CorrelationID, "correlation-id", "", "the correlation id")
	flags.StringVar(&p.message.StreamKey, "stream", "", "the stream key")
	flags.Var(&p.delay, "delay", "how long the message waits before it is due: 90m, or 7d")
	flags.Var(&p.ttl, "ttl", "how long until it expires, by this machine's clock (default never)")
	flags.StringVar(&p.log, "to", "queue", "queue, log or both")
	c.MarkFlagsMutuallyExclusive("payload", "file")
	c.MarkFlagsOneRequired("payload", "file") // an empty payload is not what was forgotten
	return c
}

const headerExpiresAt = "outbox_expires_at"

// isOurs reports whether a header is one of the library's that people do not set.
func isOurs(name string) bool { return strings.HasPrefix(name, "outbox_") && name != headerExpiresAt }

// readHeaders refuses those of the library that a Publisher would read, or that a delivery sets anew.
func (p *publishing) readHeaders() (map[string]string, error) {
	headers := map[string]string{}
	for _, header := range p.headers {
		name, value, found := strings.Cut(header, "=")
		switch {
		case !found:
			return nil, usage("--header %q has no =; write name=value", header)
		case name == outbox.HeaderStreamKey:
			return nil, usage("--header %s would only be stored: the stream is set with --stream", name)
		case isOurs(name):
			return nil, usage("--header %s is set by the library", name)
		}
		headers[name] = value
	}
	return headers, nil
}

func (a *app) publish(ctx context.Context, db *database, p *publishing) (err error) {
	config := db.config()
	modes := map[string]outbox.LogMode{"queue": outbox.QueueOnly, "log": outbox.LogOnly, "both": outbox.QueueAndLog}
	mode, known := modes[p.log]
	if !known {
		return usage("--to %q is unknown; it is queue, log or both", p.log)
	}
	config.Log = mode
	p.message.Payload = []byte(p.payload)
	if p.file != "" {
		if p.message.Payload, err = a.readAll(ctx, "the payload", p.file); err != nil {
			return err
		}
	}
	p.message.Delay = p.delay.duration
	if p.ttl.duration > 0 {
		p.message.ExpiresAt = a.Now().Add(p.ttl.duration)
	}
	if p.message.Headers, err = p.readHeaders(); err != nil {
		return err
	}
	o, err := outbox.New(db.DB, config, nil)
	if err != nil {
		return err
	}
	if p.message.UUID == "" {
		id, err := o.NewID()
		if err != nil {
			return err
		}
		p.message.UUID = id.String()
	}
	ids, err := o.Enqueue(ctx, db.DB, p.message)
	if err != nil {
		return err
	}
	outbox.Wake(p.message.Topic)
	return a.render.show(struct {
		ID   string `json:"id"`
		UUID string `json:"uuid"`
	}{ids[0].String(), p.message.UUID}, []fact{{"id", ids[0].String()}, {"uuid", p.message.UUID}})
}
