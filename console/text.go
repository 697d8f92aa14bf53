package console

import (
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
	"time"

	outbox "github.com/incursa/watermill-outbox"
)

// countCap is where the counts of package admin and of Outbox.Topics end.
const countCap = 10_000

// number writes 1234567 as 1,234,567.
func number(n int) string {
	digits := strconv.Itoa(n)
	sign := ""
	if n < 0 {
		sign, digits = "−", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

// upTo writes a count that ends at 10,000.
func upTo(n int) string {
	if n >= countCap {
		return number(n) + "+"
	}
	return number(n)
}

// counted writes a count with its noun.
func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return number(n) + " " + many
}

// rate writes how many a second.
func rate(r float64) string {
	switch {
	case r == 0:
		return "0"
	case r < 10:
		return strconv.FormatFloat(r, 'f', 1, 64)
	default:
		return number(int(math.Round(r)))
	}
}

// span writes a duration in its largest unit.
func span(d time.Duration) string {
	for _, unit := range []struct {
		size time.Duration
		name string
	}{{48 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "min"}, {time.Second, "s"}} {
		if d >= unit.size {
			if unit.name == "d" {
				unit.size = 24 * time.Hour
			}
			return fmt.Sprintf("%d %s", d/unit.size, unit.name)
		}
	}
	if d <= 0 {
		return "0 s"
	}
	return fmt.Sprintf("%d ms", d.Milliseconds())
}

// ago writes a moment as its distance from now, with the moment itself for who points at it.
func ago(t time.Time) template.HTML {
	if t.IsZero() {
		return ""
	}
	t = t.UTC()
	words := "now"
	if passed := time.Since(t); passed >= time.Second {
		words = span(passed) + " ago"
	}
	if wait := time.Until(t); wait > 0 {
		words = "in " + span(wait)
	}
	return template.HTML(fmt.Sprintf(`<time datetime="%s" title="%s">%s</time>`, //nolint:gosec // made of numbers alone
		t.Format(time.RFC3339Nano), t.Format("2006-01-02 15:04:05.000 UTC"), words))
}

// clock writes a moment.
func clock(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05.000")
}

func size(n int) string {
	switch {
	case n < 1<<10:
		return counted(n, "byte", "bytes")
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	default:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
}

// firstLine is what fits into a row of a table.
func firstLine(text string) string {
	const most = 200
	text, _, _ = strings.Cut(text, "\n")
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return text
}

// tone is the class of a state's mark.
func tone(state string) string {
	switch state {
	case outbox.Failed.String(), "failed", "blocked", "cancelled", "lease expired":
		return "bad"
	case outbox.Ready.String(), outbox.InProgress.String(), "pending", "being handled", "retried":
		return "live"
	default:
		return "calm"
	}
}

// states are those of messages, as forms and links name them.
var states = []outbox.Status{outbox.Ready, outbox.InProgress, outbox.Done, outbox.Failed, outbox.Logged}
