package admin

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/internal/field"
)

// ErrorParams select dead letters to count by error.
type ErrorParams struct {
	Filter

	// Examine is the most dead letters to look at, those that failed first. Defaults to no limit.
	Examine int

	// Limit is the most groups to return, 1 to 1,000; the rest is counted in ErrorCounts.Others. Defaults to 100.
	Limit int

	// Progress is called after each batch. Defaults to nothing.
	Progress func(Result)
}

// An ErrorGroup is the dead letters with the same error, in one topic.
type ErrorGroup struct {
	Topic       string
	Error       string // the first line, up to 1,000 characters
	Count       int
	First, Last time.Time // when they failed
	Example     Message   // the last of them
}

// ErrorCounts are dead letters by topic and error, the most frequent first.
type ErrorCounts struct {
	Groups []ErrorGroup

	// Others is how many dead letters have an error that is in none of the Groups.
	Others int

	// Total is how many match, of Examined.
	Total, Examined int
}

// Errors counts dead letters by topic and error. It returns a *outbox.FieldError for bad parameters.
func (a *Admin) Errors(ctx context.Context, params ErrorParams) (ErrorCounts, error) {
	if err := params.check(); err != nil {
		return ErrorCounts{}, err
	}
	var counts ErrorCounts
	groups := map[[2]string]*ErrorGroup{}
	err := a.each(ctx, outbox.Failed, params.Filter, func(s *step) error {
		counts.Examined += s.examined
		counts.Total += len(s.found)
		for _, m := range s.found {
			counts.add(groups, m.Message)
		}
		if params.Progress != nil {
			params.Progress(Result{Examined: counts.Examined, Matched: counts.Total, Until: s.until})
		}
		if params.Examine > 0 && counts.Examined >= params.Examine {
			return errEnough
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return ErrorCounts{}, err
	}
	for _, g := range groups {
		counts.Groups = append(counts.Groups, *g)
	}
	slices.SortFunc(counts.Groups, func(a, b ErrorGroup) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Error, b.Error))
	})
	for _, g := range counts.Groups[min(params.Limit, len(counts.Groups)):] {
		counts.Others += g.Count
	}
	counts.Groups = counts.Groups[:min(params.Limit, len(counts.Groups))]
	return counts, nil
}

func (p *ErrorParams) check() error {
	field.Default(&p.Limit, 100)
	switch {
	case p.Limit < 1 || p.Limit > maxBatch:
		return field.Bad("ErrorParams.Limit", "is not in the range 1 to %d", maxBatch)
	case p.Examine < 0:
		return field.Bad("ErrorParams.Examine", "is negative")
	case p.States != nil:
		return field.Bad("ErrorParams.Filter.States", "is set, but dead letters have only one state")
	}
	return field.In("ErrorParams", p.validate())
}

// errEnough ends a walk.
var errEnough = errors.New("enough were examined")

// maxGroups bounds what is kept in memory if every error is different.
const maxGroups = 100_000

func (c *ErrorCounts) add(groups map[[2]string]*ErrorGroup, m Message) {
	text, _, _ := strings.Cut(m.LastError, "\n")
	key := [2]string{m.Topic, text}
	g := groups[key]
	if g == nil {
		if len(groups) == maxGroups {
			c.Others++
			return
		}
		g = &ErrorGroup{Topic: m.Topic, Error: text, First: m.EndedAt}
		groups[key] = g
	}
	g.Count++
	g.Last, g.Example = m.EndedAt, m
}
