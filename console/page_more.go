package console

import (
	"context"
	"errors"
	"net/url"
	"strconv"
	"time"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/admin"
	"github.com/incursa/watermill-outbox/internal/field"
)

// streamsPage lists blocked streams.
func (v *visit) streamsPage() {
	ctx, cancel := v.context()
	defer cancel()
	topic := v.r.URL.Query().Get("topic")
	blocked, err := v.place.Outbox().BlockedStreams(ctx, outbox.ListParams{Topic: topic, Limit: 200})
	if err != nil {
		v.fail(err)
		return
	}
	v.render("streams", &page{Title: "Streams", At: "streams", Live: true, Body: blocked})
}

// actOnStream resumes a blocked stream, skips its head, or ends all that waits in it.
func (v *visit) actOnStream() {
	if !v.mayPost(Streams) {
		return
	}
	ctx, cancel := v.context()
	defer cancel()
	params := admin.StreamParams{Topic: v.r.PostForm.Get("topic"), StreamKey: v.r.PostForm.Get("stream"), By: v.config.Actor(v.r)}
	var err error
	switch do := v.r.PostForm.Get("do"); do {
	case "resume":
		err = v.place.admin.RequeueStream(ctx, params)
	case "skip":
		err = v.place.admin.SkipHead(ctx, params)
	case "discard":
		_, err = v.place.admin.DiscardStream(ctx, params)
	default:
		err = field.Bad("do", "%q is nothing that can be done with a stream", do)
	}
	v.done(err, "streams")
}

// logPage lists consumer groups.
func (v *visit) logPage() {
	groups, state := ask(v, "log", func(ctx context.Context, _ func([]admin.LogGroup)) ([]admin.LogGroup, error) {
		return v.place.admin.LogGroups(ctx)
	})
	if state.Err != nil {
		v.fail(state.Err)
		return
	}
	v.render("log", &page{Title: "Log", At: "log", Live: true, Busy: state.Running, Body: struct {
		Groups []admin.LogGroup
		Sample *sample
	}{groups, v.sample()}})
}

// groupDeadPage lists what a consumer group has given up.
func (v *visit) groupDeadPage() {
	q := v.r.URL.Query()
	params := outbox.GroupDeadLetterParams{Group: q.Get("group"), Topic: q.Get("topic"), Limit: pageSize}
	if text := q.Get("after"); text != "" {
		var err error
		if params.After, err = strconv.ParseInt(text, 10, 64); err != nil {
			v.fail(field.Bad("after", "%q is no position in the log", text))
			return
		}
	}
	ctx, cancel := v.context()
	defer cancel()
	letters, err := v.place.Outbox().GroupDeadLetters(ctx, params)
	if err != nil {
		v.fail(err)
		return
	}
	more := ""
	if len(letters) >= pageSize {
		more = strconv.FormatInt(letters[len(letters)-1].Position, 10)
	}
	v.render("log_dead", &page{Title: "Dead letters of " + params.Group, At: "log", Body: struct {
		Group   string
		Letters []outbox.GroupDeadLetter
		More    string
	}{params.Group, letters, more}})
}

// actOnGroup forgets a consumer group, moves it past the message that holds it up, or requeues or discards its dead letters.
func (v *visit) actOnGroup() {
	if !v.mayPost(Groups) {
		return
	}
	ctx, cancel := v.context()
	defer cancel()
	form := v.r.PostForm
	params := admin.GroupActParams{By: v.config.Actor(v.r)}
	params.Group, params.All = form.Get("group"), form.Get("all") != ""
	for _, text := range form["position"] {
		position, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			v.fail(field.Bad("position", "%q is no position in the log", text))
			return
		}
		params.Positions = append(params.Positions, position)
	}
	if !params.All && params.Positions == nil {
		params.Positions = []int64{}
	}
	var err error
	next := "log/dead?" + url.Values{"group": {params.Group}}.Encode()
	switch do := form.Get("do"); do {
	case "forget":
		next = "log"
		if form.Get("confirm") != params.Group {
			err = field.Bad("confirm", "is not the name of the group; type it to forget the group")
			break
		}
		err = v.place.admin.ForgetGroup(ctx, admin.ForgetGroupParams{Group: params.Group, By: params.By})
	case "skip":
		next = "log"
		_, err = v.place.admin.SkipGroupHead(ctx, admin.SkipGroupHeadParams{Group: params.Group, Topic: form.Get("topic"), By: params.By})
	case "requeue":
		_, err = v.place.admin.RequeueGroupDeadLetters(ctx, params)
	case "discard":
		_, err = v.place.admin.DiscardGroupDeadLetters(ctx, params)
	default:
		err = field.Bad("do", "%q is nothing that can be done with a group", do)
	}
	v.done(err, next)
}

// A crew is the workers of a store, and what they hold.
type crew struct {
	Now     time.Time // by the database's clock
	Workers []admin.Worker
	Leases  []admin.Lease
}

// workersPage lists who works, and who holds messages.
func (v *visit) workersPage() {
	all, state := ask(v, "workers", func(ctx context.Context, _ func(crew)) (all crew, err error) {
		health, err := v.place.admin.Health(ctx)
		if err != nil {
			return all, err
		}
		all.Now = health.Now
		if all.Workers, err = v.place.admin.Workers(ctx); err != nil {
			return all, err
		}
		all.Leases, err = v.place.admin.Leases(ctx)
		return all, err
	})
	if state.Err != nil {
		v.fail(state.Err)
		return
	}
	v.render("workers", &page{Title: "Workers", At: "workers", Live: true, Busy: state.Running, Body: struct {
		crew
		State answer
	}{all, state}})
}

// auditPage lists what was done by whom, from wherever it was done.
func (v *visit) auditPage() {
	params := admin.AuditParams{Limit: pageSize}
	if text := v.r.URL.Query().Get("before"); text != "" {
		var err error
		if params.Before, err = strconv.ParseInt(text, 10, 64); err != nil {
			v.fail(field.Bad("before", "%q is no number of an entry", text))
			return
		}
	}
	ctx, cancel := v.context()
	defer cancel()
	entries, err := v.place.admin.Audit(ctx, params)
	if err != nil {
		v.fail(err)
		return
	}
	more := ""
	if len(entries) == pageSize {
		more = strconv.FormatInt(entries[pageSize-1].No, 10)
	}
	v.render("audit", &page{Title: "Audit", At: "audit", Body: struct {
		Entries []admin.AuditEntry
		More    string
	}{entries, more}})
}

// schemaPage compares the database with what this version of the library needs.
func (v *visit) schemaPage() {
	type result struct{ Problems []string }
	found, state := ask(v, "schema", func(ctx context.Context, _ func(result)) (result, error) {
		err := outbox.Check(ctx, v.place.DB(), v.place.migrateConfig())
		if err != nil && !errors.Is(err, outbox.ErrSchema) {
			return result{}, err
		}
		return result{problems(err)}, nil
	})
	if state.Err != nil {
		v.fail(state.Err)
		return
	}
	d := v.place.Database()
	offset := time.Duration(0)
	if s := v.sample(); s.Err == nil {
		offset = s.Health.Now.Sub(s.At)
	}
	v.render("schema", &page{Title: "Schema", At: "schema", Busy: state.Running, Body: struct {
		Problems               []string
		State                  answer
		Dialect, Schema, Table string
		Offset                 time.Duration
	}{found.Problems, state, d.Dialect.Name(), d.Schema, d.Table, offset}})
}

// problems are what outbox.Check has found.
func problems(err error) []string {
	var found interface{ Problems() []string }
	switch {
	case err == nil:
		return nil
	case errors.As(err, &found):
		return found.Problems()
	default:
		return []string{err.Error()}
	}
}
