package cli

import (
	"time"

	"github.com/spf13/cobra"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/admin"
)

// filterFlags are the flags that select messages.
type filterFlags struct {
	filter       admin.Filter
	since, until string
	states       []string
}

func (f *filterFlags) add(c *cobra.Command, verb string) {
	flags := c.Flags()
	flags.StringVar(&f.filter.Topic, "topic", "", "only messages of this topic")
	flags.StringVar(&f.filter.Error, "error", "", "only messages whose last error contains this text; case matters")
	flags.StringVar(&f.filter.UUID, "uuid", "", "only messages with this Watermill UUID")
	flags.StringVar(&f.filter.CorrelationID, "correlation-id", "", "only messages with this correlation id")
	flags.StringVar(&f.filter.StreamKey, "stream", "", "only messages with this stream key")
	flags.StringVar(&f.since, "since", "", "only messages that "+verb+" then or later: 2h, or 2006-01-02T15:04:05Z")
	flags.StringVar(&f.until, "until", "", "only messages that "+verb+" until then, in the same form")
}

func (f *filterFlags) addStates(c *cobra.Command) {
	c.Flags().StringSliceVar(&f.states, "state", nil, "only messages in these states: ready, in progress, done, failed or logged")
}

// chosen says whether the flags select anything but a time to end at.
func (f *filterFlags) chosen() bool {
	g := f.filter
	return g.Topic != "" || g.Error != "" || g.UUID != "" || g.CorrelationID != "" || g.StreamKey != "" || f.since != ""
}

// none says that there is nothing of what the flags select: none at all, or none of that kind.
func (f *filterFlags) none(what string) string {
	return none(what, f.chosen() || f.until != "" || len(f.states) > 0)
}

func none(what string, selected bool) string {
	if selected {
		return "There is no such " + what + "."
	}
	return "There are no " + what + "s."
}

func (f *filterFlags) read(now time.Time) (filter admin.Filter, err error) {
	filter = f.filter
	if filter.Since, err = parseTime("--since", f.since, now); err != nil {
		return filter, err
	}
	if filter.Until, err = parseTime("--until", f.until, now); err != nil {
		return filter, err
	}
	names := map[string]outbox.Status{"progress": outbox.InProgress, "log": outbox.Logged} // for short
	for _, s := range []outbox.Status{outbox.Ready, outbox.InProgress, outbox.Done, outbox.Failed, outbox.Logged} {
		names[s.String()] = s
	}
	for _, name := range f.states {
		state, known := names[name]
		if !known {
			return filter, usage("--state %q is unknown; it is ready, in progress, done, failed or logged", name)
		}
		filter.States = append(filter.States, state)
	}
	return filter, nil
}

// parseTime reads a moment, or how long ago it was.
func parseTime(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if ago, err := parseAge(text); err == nil {
		return now.Add(-ago), nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02 15:04:05Z07:00", "2006-01-02"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, usage("%s %q is no time; write 90m or 7d for how long ago, or 2006-01-02T15:04:05Z", flag, text)
}

// moment is a time that parseTime reads to the microsecond.
func moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}
