package console

import (
	"context"
	"net/url"
	"slices"

	"github.com/incursa/watermill-outbox/admin"
	"github.com/incursa/watermill-outbox/internal/field"
)

// A topicRow is a topic with its last hour.
type topicRow struct {
	topicSample
	Paused bool
	Chart  chart
}

// topicsPage is the store at a glance. It shows the last sample, and asks the database only if there is none.
func (v *visit) topicsPage() {
	s := v.sample()
	if s.Err != nil {
		v.fail(s.Err)
		return
	}
	var rows []topicRow
	for _, t := range s.Topics {
		rows = append(rows, topicRow{t, !s.Paused[t.Topic].Since.IsZero(), smallChart(v.place.history.points(t.Topic))})
	}
	v.render("topics", &page{Title: "Topics", At: "topics", Live: true, Body: struct {
		*sample
		Rows   []topicRow
		Charts []chart
	}{s, rows, largeCharts(v.place.history.points(""))}})
}

// sample is the last one of the store.
func (v *visit) sample() *sample {
	if s := v.place.history.latest(); s != nil {
		return s
	}
	ctx, cancel := v.context()
	defer cancel()
	return v.place.look(ctx, nil)
}

// topicPage shows one topic, with its last messages.
func (v *visit) topicPage() {
	name := v.r.URL.Query().Get("name")
	if name == "" {
		v.fail(field.Bad("name", "is empty; name the topic"))
		return
	}
	s := v.sample()
	if s.Err != nil {
		v.fail(s.Err)
		return
	}
	now, state := ask(v, "topic\x00"+name, func(ctx context.Context, _ func(topicNow)) (topicNow, error) { return v.place.now(ctx, name) })
	if state.Err != nil {
		v.fail(state.Err)
		return
	}
	body := struct {
		Topic  topicSample
		Charts []chart
		Now    topicNow
		State  answer
		Paused admin.PausedTopic
	}{Now: now, State: state, Paused: s.Paused[name], Charts: largeCharts(v.place.history.points(name))}
	body.Topic.Topic = name
	for _, t := range s.Topics {
		if t.Topic == name {
			body.Topic = t
		}
	}
	v.render("topic", &page{Title: name, At: "topics", Live: true, Busy: state.Running, Body: body})
}

// A topicNow is who holds messages of a topic, and its last messages.
type topicNow struct {
	Leases []admin.Lease
	Recent []admin.Message
}

func (p *place) now(ctx context.Context, topic string) (now topicNow, err error) {
	leases, err := p.admin.Leases(ctx)
	if err != nil {
		return now, err
	}
	now.Leases = slices.DeleteFunc(leases, func(l admin.Lease) bool { return l.Topic != topic })
	recent, err := p.admin.Messages(ctx, admin.ListParams{Filter: admin.Filter{Topic: topic}, Limit: 20, Examine: 2000})
	now.Recent = recent.Messages
	return now, err
}

// pauseTopic pauses a topic, or resumes it.
func (v *visit) pauseTopic() {
	if !v.mayPost(Pause) {
		return
	}
	ctx, cancel := v.context()
	defer cancel()
	form, by := v.r.PostForm, v.config.Actor(v.r)
	topic := form.Get("topic")
	var err error
	switch do := form.Get("do"); do {
	case "pause":
		err = v.place.admin.Pause(ctx, admin.PauseParams{Topic: topic, By: by, Reason: form.Get("reason")})
	case "resume":
		err = v.place.admin.Resume(ctx, admin.ResumeParams{Topic: topic, By: by})
	default:
		err = field.Bad("do", "%q is nothing that can be done with a topic", do)
	}
	v.sampleOne(v.place)
	v.done(err, "topic?"+url.Values{"name": {topic}}.Encode())
}
