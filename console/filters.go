package console

import (
	"html/template"
	"net/url"
	"slices"
	"strings"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/admin"
	"github.com/incursa/watermill-outbox/internal/field"
)

// A filterForm is a filter as forms and addresses have it.
type filterForm struct {
	Topic, UUID, Correlation, Stream, Error, Since, Until string
	States                                                []string
}

func readFilter(q url.Values) filterForm {
	text := func(name string) string { return strings.TrimSpace(q.Get(name)) }
	return filterForm{Topic: q.Get("topic"), UUID: text("uuid"), Correlation: q.Get("correlation"), Stream: q.Get("stream"), Error: q.Get("error"),
		Since: text("since"), Until: text("until"), States: q["state"]}
}

// Values are the filter's part of an address.
func (f filterForm) Values() url.Values {
	q := url.Values{}
	for name, value := range map[string]string{"topic": f.Topic, "uuid": f.UUID, "correlation": f.Correlation, "stream": f.Stream,
		"error": f.Error, "since": f.Since, "until": f.Until} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if len(f.States) > 0 {
		q["state"] = f.States
	}
	return q
}

// Query is the same as text.
func (f filterForm) Query() template.URL {
	return template.URL(f.Values().Encode()) //nolint:gosec // it is encoded
}

// Narrow is the address with a topic and an error.
func (f filterForm) Narrow(topic, text string) template.URL {
	f.Topic, f.Error = topic, text
	return f.Query()
}

// Hidden are the values of a form that repeats the filter; until is set anew.
func (f filterForm) Hidden() url.Values {
	f.Until = ""
	return f.Values()
}

// IsZero says whether everything matches.
func (f filterForm) IsZero() bool { return len(f.Values()) == 0 }

// Has says whether a state is asked for.
func (f filterForm) Has(state string) bool { return slices.Contains(f.States, state) }

// Words say what matches.
func (f filterForm) Words() string {
	var parts []string
	add := func(before, value string) {
		if value != "" {
			parts = append(parts, before+" “"+value+"”")
		}
	}
	add("topic", f.Topic)
	add("error with", f.Error)
	add("UUID", f.UUID)
	add("correlation id", f.Correlation)
	add("stream", f.Stream)
	add("since", f.Since)
	add("until", f.Until)
	if len(parts) == 0 {
		return "all"
	}
	return strings.Join(parts, ", ")
}

// filter is what package admin understands. Times are ages, such as 2h, or moments.
func (f filterForm) filter(now time.Time) (filter admin.Filter, err error) {
	filter = admin.Filter{Topic: f.Topic, UUID: f.UUID, CorrelationID: f.Correlation, StreamKey: f.Stream, Error: f.Error}
	if filter.Since, err = moment("since", f.Since, now); err != nil {
		return filter, err
	}
	if filter.Until, err = moment("until", f.Until, now); err != nil {
		return filter, err
	}
	for _, name := range f.States {
		i := slices.IndexFunc(states, func(s outbox.Status) bool { return s.String() == name })
		if i < 0 {
			return filter, field.Bad("state", "%q is none that messages have", name)
		}
		filter.States = append(filter.States, states[i])
	}
	return filter, nil
}

func moment(name, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	days, found := strings.CutSuffix(text, "d")
	unit := time.Duration(1)
	if found {
		text, unit = days+"h", 24
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > 365*24*time.Hour {
		return time.Time{}, field.Bad(name, "%q is neither an age, such as 2h or 7d, nor a moment, such as 2006-01-02T15:04:05Z", text)
	}
	return now.Add(-d * unit), nil
}
