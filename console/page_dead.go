package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/admin"
	"github.com/incursa/watermill-outbox/internal/field"
)

// groups are dead letters by error, as far as they have been counted.
type groups struct {
	admin.ErrorCounts
	Part bool // only the first have been counted so far
}

// deadPage shows dead letters by error, and the last of them.
func (v *visit) deadPage() {
	m, ok := v.find("dead", v.place.admin.Failed)
	if !ok {
		return
	}
	filter, err := m.Form.filter(time.Now())
	if err != nil {
		v.fail(err)
		return
	}
	counts, state := ask(v, "groups\x00"+string(m.Form.Query()), func(ctx context.Context, tell func(groups)) (groups, error) {
		first, err := v.place.admin.Errors(ctx, admin.ErrorParams{Filter: filter, Examine: 1000})
		if err != nil || first.Examined < 1000 {
			return groups{ErrorCounts: first}, err
		}
		tell(groups{first, true})
		nextStep(ctx)
		all, err := v.place.admin.Errors(ctx, admin.ErrorParams{Filter: filter, Progress: func(r admin.Result) {
			nextStep(ctx)
			first.Examined, first.Total = r.Examined, r.Matched
			tell(groups{first, true})
		}})
		return groups{ErrorCounts: all}, err
	})
	if state.Err != nil {
		v.fail(state.Err)
		return
	}
	v.render("dead", &page{Title: "Dead letters", At: "dead", Busy: m.State.Running || state.Running, Body: struct {
		messages
		Groups groups
		Count  answer
		Acts   []actKind
	}{m, counts, state, v.actsAllowed(outbox.Failed)}})
}

func (v *visit) actsAllowed(state outbox.Status) (kinds []actKind) {
	for _, k := range actKinds {
		if k.On == state && v.authorize(k.Right) == nil {
			kinds = append(kinds, k)
		}
	}
	return kinds
}

// A selection is the messages of an act, as the address or the form of it has them.
type selection struct {
	Kind actKind
	Form filterForm
	IDs  []string
	Next admin.DelayParams
	Wait string // of a delay, as in the form
}

// maxSelected is the most messages that are chosen one by one.
const maxSelected = 1000

// selected reads what is to be done. The error is an *outbox.FieldError.
func (v *visit) selected(q url.Values) (s selection, err error) {
	var known bool
	if s.Kind, known = actOf(verb(q.Get("do"))); !known {
		return s, field.Bad("do", "%q is nothing that can be done", q.Get("do"))
	}
	s.Form, s.IDs = readFilter(q), q["id"]
	switch { // without an id, a form of chosen messages would mean all
	case q.Has("chosen") && len(s.IDs) == 0:
		return s, field.Bad("id", "is missing; choose at least one message")
	case len(s.IDs) > maxSelected:
		return s, field.Bad("id", "is set more than %d times; use a filter", maxSelected)
	}
	if s.Next.Filter, err = s.Form.filter(time.Now()); err != nil {
		return s, err
	}
	s.Next.States = nil // those of a search; an act says itself what it is for
	for _, text := range s.IDs {
		var id outbox.MessageID
		if err := id.UnmarshalText([]byte(text)); err != nil {
			return s, field.Bad("id", "%q is no id of a message", text)
		}
		s.Next.IDs = append(s.Next.IDs, id)
	}
	if s.Wait = q.Get("delay"); s.Kind.Delays() {
		field.Default(&s.Wait, "10m")
		if s.Next.Delay, err = time.ParseDuration(s.Wait); err != nil || s.Next.Delay <= 0 {
			return s, field.Bad("delay", "%q is no duration, such as 10m or 2h", s.Wait)
		}
	}
	s.Next.By = v.config.Actor(v.r)
	chosen := s.Form
	chosen.Until, chosen.States = "", nil
	s.Next.All = len(s.IDs) == 0 && chosen.IsZero() && s.Form.Since == ""
	return s, nil
}

// Words say which messages are meant.
func (s selection) Words() string {
	if len(s.IDs) > 0 {
		return counted(len(s.IDs), "message that was chosen", "messages that were chosen")
	}
	return s.Form.Words()
}

// confirmPage counts what an act would be done to, and asks. Nothing is changed.
func (v *visit) confirmPage() {
	q := v.r.URL.Query()
	s, err := v.selected(q)
	if err != nil {
		v.fail(err)
		return
	}
	if err := v.authorize(s.Kind.Right); err != nil {
		v.refuse(Action{s.Kind.Right, v.place.ID()}, err)
		return
	}
	result, state := ask(v, "confirm\x00"+q.Encode(), func(ctx context.Context, tell func(admin.Result)) (admin.Result, error) {
		params := s.Next
		params.DryRun, params.Progress = true, func(r admin.Result) { tell(r); nextStep(ctx) }
		return s.Kind.run(v.place.admin, ctx, params)
	})
	if state.Err != nil {
		v.fail(state.Err)
		return
	}
	v.render("confirm", &page{Title: s.Kind.Do, At: s.Kind.From(), Busy: state.Running, Body: struct {
		selection
		Result admin.Result
		State  answer
		Until  string // what fails later is left alone
	}{s, result, state, result.Until.UTC().Format(time.RFC3339Nano)}})
}

// act does what was asked for and counted. It goes on whether or not the reader stays.
func (v *visit) act() {
	if err := v.r.ParseForm(); err != nil {
		v.fail(field.Bad("form", "cannot be read: %v", err))
		return
	}
	s, err := v.selected(v.r.PostForm)
	if err != nil {
		v.fail(err)
		return
	}
	if err := v.authorize(s.Kind.Right); err != nil {
		v.refuse(Action{s.Kind.Right, v.place.ID()}, err)
		return
	}
	var count int
	if _, err := fmt.Sscanf(v.r.PostForm.Get("counted"), "%d", &count); err != nil || count < 0 || s.Next.Until.IsZero() {
		v.fail(field.Bad("counted", "is missing: look first at what this would be done to"))
		return
	}
	o := &operation{Verb: s.Kind.Verb, Actor: v.config.Actor(v.r), What: s.Words(), Counted: count}
	of := v.place.admin
	err = v.acts.start(v.Console, v.place, o, func(ctx context.Context, progress func(admin.Result)) (admin.Result, error) {
		params := s.Next
		params.Progress = progress
		return s.Kind.run(of, ctx, params)
	})
	if errors.Is(err, errBusy) {
		v.render("error", &page{Title: "Not now", Status: http.StatusTooManyRequests, Error: err.Error()})
		return
	}
	if err != nil {
		v.fail(err)
		return
	}
	http.Redirect(v.w, v.r, v.config.Prefix+fmt.Sprintf("/activity/%d", o.ID), http.StatusSeeOther)
}
