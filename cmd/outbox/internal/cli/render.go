package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

// A record is a row of a list, or a thing that is shown. Its JSON form goes to programs, its cells to people.
type record interface{ cells() []string }

// A renderer writes records: as a table, or as JSON, one line each.
type renderer struct {
	out  io.Writer
	json bool
}

func newRenderer(out io.Writer, format string) (*renderer, error) {
	if format != "table" && format != "json" {
		return nil, usage("--output is %q; it is table or json", format)
	}
	return &renderer{out, format == "json"}, nil
}

// list writes records below the names of their columns, or says that there are none.
func list[R record](r *renderer, columns string, records []R, none string) error {
	if r.json {
		for _, one := range records {
			if err := r.line(one); err != nil {
				return err
			}
		}
		return nil
	}
	if len(records) == 0 {
		return r.say("%s", none)
	}
	w := tabwriter.NewWriter(r.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, strings.ReplaceAll(columns, ", ", "\t"))
	for _, one := range records {
		fmt.Fprintln(w, row(one.cells()))
	}
	return w.Flush()
}

// row escapes cells. Nothing follows the last that is not empty.
func row(cells []string) string {
	for i, cell := range cells {
		cells[i] = escape(cell, false)
	}
	return strings.TrimRight(strings.Join(cells, "\t"), "\t ")
}

// A fact is a line about something that is shown.
type fact struct{ name, value string }

func (f fact) cells() []string { return []string{f.name, f.value} }

// show writes one thing: facts for people, the whole of it as JSON.
func (r *renderer) show(thing any, facts []fact) error {
	if r.json {
		return r.line(thing)
	}
	w := tabwriter.NewWriter(r.out, 0, 0, 2, ' ', 0)
	for _, f := range facts {
		if f.value != "" {
			fmt.Fprintln(w, row(f.cells()))
		}
	}
	return w.Flush()
}

// result writes what has come of an act: a sentence for people.
func (r *renderer) result(thing any, sentence string) error {
	if r.json {
		return r.line(thing)
	}
	return r.say("%s", sentence)
}

// line writes a value as one line of JSON.
func (r *renderer) line(value any) error {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	_, err := fmt.Fprintln(r.out, escapeJSON(strings.TrimSuffix(b.String(), "\n")))
	return err
}

// say writes a sentence to people, and nothing to programs.
func (r *renderer) say(format string, args ...any) error {
	if r.json {
		return nil
	}
	_, err := fmt.Fprintf(r.out, format+"\n", args...)
	return err
}

// escape makes a text harmless on a terminal: what cannot be printed is written as in Go. Lines may be kept, with their tabs.
func escape(text string, lines bool) string {
	return mapHarmful(text, func(r rune) string {
		if lines && (r == '\n' || r == '\t') {
			return string(r)
		}
		return strings.Trim(strconv.QuoteRune(r), "'")
	})
}

// escapeJSON does the same to JSON, where such characters are only in strings.
func escapeJSON(text string) string {
	return mapHarmful(text, func(r rune) string {
		if r > 0xffff {
			r -= 0x10000
			return fmt.Sprintf(`\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		}
		return fmt.Sprintf(`\u%04x`, r)
	})
}

func mapHarmful(text string, write func(rune) string) string {
	if strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) < 0 {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(write(r))
		}
	}
	return b.String()
}

// short is the first line of a text, cut to a width that fits into a table.
func short(text string) string {
	const width = 80
	line, _, more := strings.Cut(text, "\n")
	if runes := []rune(line); len(runes) > width {
		return string(runes[:width-1]) + "…"
	}
	if more {
		return line + " …"
	}
	return line
}

func clock(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05.000Z")
}

// span is a duration that nobody wants to know to the nanosecond.
func span(d time.Duration) string {
	switch {
	case d >= time.Minute:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(100 * time.Millisecond).String()
	default:
		return d.Round(time.Millisecond).String()
	}
}

// mostCounted is how far the library counts what there may be much of.
const mostCounted = 10_000

// upTo is a number that was counted up to a limit.
func upTo(n int) string {
	if n >= mostCounted {
		return "10,000 or more"
	}
	return number(n)
}

// number groups digits.
func number(n int) string {
	text := strconv.Itoa(n)
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}

// counted names a number of things.
func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return number(n) + " " + many
}

// isAre is the verb for a number of things.
func isAre(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

// yesNo is a flag in a table.
func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
