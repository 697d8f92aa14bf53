package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/admin"
)

// A story is a message with all that happened to it.
type story struct {
	message
	DueAt       string            `json:"due_at,omitempty"`
	LockedUntil string            `json:"locked_until,omitempty"`
	PayloadSize int               `json:"payload_size"`
	Headers     map[string]string `json:"headers,omitempty"`
	Payload     *string           `json:"payload,omitempty"` // as text
	PayloadRaw  []byte            `json:"payload_base64,omitempty"`
	Malformed   string            `json:"malformed,omitempty"`
	Attempts    []attempt         `json:"attempts,omitempty"`
	Log         *logPlace         `json:"log,omitempty"`
	Stream      *streamPlace      `json:"stream,omitempty"`
	Joins       []joinPlace       `json:"joins,omitempty"`
	GivenUp     []givenUp         `json:"given_up,omitempty"`
}

type attempt struct {
	At      string `json:"at"`
	Attempt int    `json:"attempt"`
	Outcome string `json:"outcome"`
	Worker  string `json:"worker"`
	Error   string `json:"error,omitempty"`
}

type logPlace struct {
	Position int64  `json:"position"`
	LoggedAt string `json:"logged_at,omitempty"`
}

type streamPlace struct {
	State string `json:"state"`
	Ahead int    `json:"ahead"`
}

type joinPlace struct {
	ID          string `json:"id"`
	GroupingKey string `json:"grouping_key,omitempty"`
	Status      string `json:"status"`
	Step        string `json:"step"`
	ByReport    bool   `json:"by_report"`
}

type givenUp struct {
	Group    string `json:"group"`
	At       string `json:"at"`
	Attempts int    `json:"attempts"`
	Reason   string `json:"reason"`
}

// shown are the parts of a message that may be secret.
type shown struct {
	payload, headers bool
	raw              bool // the payload alone
}

func (a *app) showCommand() *cobra.Command {
	var what shown
	c := a.action(&cobra.Command{Use: "show ID", Short: "Show all that is known of a message, by its id or its Watermill UUID", Args: arguments(cobra.ExactArgs(1))},
		func(ctx context.Context, db *database, args []string) error {
			if what.raw && a.render.json {
				return usage("--raw and --output json exclude each other")
			}
			of, err := db.admin()
			if err != nil {
				return err
			}
			return a.showStory(ctx, of, args[0], what)
		})
	c.Flags().BoolVar(&what.payload, "payload", false, "show the payload, too")
	c.Flags().BoolVar(&what.headers, "headers", false, "show the headers, too")
	c.Flags().BoolVar(&what.raw, "raw", false, "write the payload, byte for byte, and nothing else")
	c.MarkFlagsMutuallyExclusive("raw", "payload")
	c.MarkFlagsMutuallyExclusive("raw", "headers")
	return c
}

func (a *app) showStory(ctx context.Context, of *admin.Admin, name string, what shown) error {
	known, err := findStory(ctx, of, name)
	if err != nil {
		return err
	}
	if what.raw {
		_, err := a.Out.Write(known.Record.Payload)
		return err
	}
	s := newStory(known, what)
	return a.render.show(s, s.facts(known, what))
}

// findStory looks for a message by its id, and then for the last one with the UUID.
func findStory(ctx context.Context, of *admin.Admin, name string) (*admin.Story, error) {
	var id outbox.MessageID
	if err := id.UnmarshalText([]byte(name)); err == nil {
		known, err := of.Story(ctx, id)
		if !errors.Is(err, admin.ErrNotFound) {
			return known, err
		}
	}
	page, err := of.Messages(ctx, admin.ListParams{Filter: admin.Filter{UUID: name}, Limit: 1})
	if err != nil {
		return nil, err
	}
	if len(page.Messages) == 0 {
		return nil, fmt.Errorf("%w, by the id or UUID %q; %s were looked at", admin.ErrNotFound, name, number(page.Examined))
	}
	return of.Story(ctx, page.Messages[0].ID)
}

func newStory(known *admin.Story, what shown) *story {
	r := &known.Record
	s := &story{message: newMessage(admin.Message{ID: r.ID, Seq: r.Seq, UUID: r.UUID, Topic: r.Topic, CorrelationID: r.CorrelationID,
		StreamKey: r.StreamKey, Status: r.Status, RetryCount: r.RetryCount, CreatedAt: r.CreatedAt,
		NextAttemptAt: r.NextAttemptAt, EndedAt: r.ProcessedAt, EndedBy: r.ProcessedBy, LastError: r.LastError}),
		DueAt: moment(r.DueAt), LockedUntil: moment(r.LockedUntil), PayloadSize: len(r.Payload)}
	if r.Malformed != nil {
		s.Malformed = r.Malformed.Error()
	}
	if what.headers {
		s.Headers = r.Headers
	}
	if what.payload {
		if text := string(r.Payload); utf8.ValidString(text) {
			s.Payload = &text
		} else {
			s.PayloadRaw = r.Payload
		}
	}
	for _, t := range known.Attempts {
		s.Attempts = append(s.Attempts, attempt{moment(t.At), t.Number, t.Outcome.String(), t.Worker, t.Error})
	}
	if known.Log != nil {
		s.Log = &logPlace{known.Log.Position, moment(known.Log.LoggedAt)}
	}
	if known.Stream != nil {
		s.Stream = &streamPlace{known.Stream.State.String(), known.Stream.Ahead}
	}
	for _, j := range known.Joins {
		s.Joins = append(s.Joins, joinPlace{j.Join.String(), j.GroupingKey, j.Status.String(), j.StepStatus.String(), j.ByReport})
	}
	for _, g := range known.GivenUp {
		s.GivenUp = append(s.GivenUp, givenUp{g.Group, moment(g.At), g.Attempts, g.Reason})
	}
	return s
}

func (s *story) facts(known *admin.Story, what shown) (facts []fact) {
	r := &known.Record
	add := func(name, value string) { facts = append(facts, fact{name, value}) }
	add("id", s.ID)
	add("uuid", s.UUID)
	add("topic", s.Topic)
	add("state", s.State)
	add("correlation id", s.CorrelationID)
	add("stream", s.StreamKey)
	add("malformed", s.Malformed)
	add("published", clock(r.CreatedAt))
	add("due", clock(r.DueAt))
	if r.Status == outbox.Ready {
		add("next attempt", clock(r.NextAttemptAt))
	}
	add("leased until", clock(r.LockedUntil))
	add("ended", clock(r.ProcessedAt))
	add("ended by", s.EndedBy)
	add("last error", short(s.LastError))
	for _, t := range known.Attempts {
		how := t.Outcome.String()
		if t.Outcome != admin.ByOperator { // whose name is in the error
			how += " by " + t.Worker
		}
		add("attempt", strings.TrimSpace(fmt.Sprintf("%s  %d  %s  %s", clock(t.At), t.Number, how, short(t.Error))))
	}
	if s.Stream != nil {
		add("in its stream", fmt.Sprintf("behind %s; the stream is %s", upTo(s.Stream.Ahead), s.Stream.State))
	}
	if known.Log != nil {
		place := "waits for a position"
		if s.Log.Position > 0 {
			place = fmt.Sprintf("%d, since %s", s.Log.Position, clock(known.Log.LoggedAt))
		}
		add("in the log", place)
	}
	for _, j := range s.Joins {
		add("step of join", fmt.Sprintf("%s  step %s, join %s  %s", j.ID, j.Step, j.Status, j.GroupingKey))
	}
	for _, g := range known.GivenUp {
		add("given up by", fmt.Sprintf("%s  %s  after %s  %s", g.Group, clock(g.At), counted(g.Attempts, "attempt", "attempts"), short(g.Reason)))
	}
	add("headers", headers(r.Headers, what.headers))
	add("payload", payload(r.Payload, what.payload))
	return facts
}

func headers(all map[string]string, show bool) string {
	if !show {
		return fmt.Sprintf("%d; --headers shows them", len(all))
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		parts = append(parts, name+"="+all[name])
	}
	return strings.Join(parts, "  ")
}

func payload(bytes []byte, show bool) string {
	switch {
	case !show:
		return counted(len(bytes), "byte", "bytes") + "; --payload shows them"
	case utf8.Valid(bytes):
		return string(bytes)
	default:
		return fmt.Sprintf("%x", bytes)
	}
}
