package console

import (
	"net/url"

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
	s := v.sample()
	if s.Err != nil {
		v.fail(s.Err)
		return
	}
	body := struct {
		Topic  topicSample
		Charts []chart
		Recent []admin.Message
		Leases []admin.Lease
		Paused admin.PausedTopic
	}{Paused: s.Paused[name], Charts: largeCharts(v.place.history.points(name))}
	body.Topic.Topic = name
	for _, t := range s.Topics {
		if t.Topic == name {
			body.Topic = t
		}
	}
	ctx, cancel := v.context()
	defer cancel()
	recent, err := v.place.admin.Messages(ctx, admin.ListParams{Filter: admin.Filter{Topic: name}, Limit: 20, Examine: 2000})
	if err != nil {
		v.fail(err)
		return
	}
	body.Recent = recent.Messages
	leases, err := v.place.admin.Leases(ctx)
	if err != nil {
		v.fail(err)
		return
	}
	for _, l := range leases {
		if l.Topic == name {
			body.Leases = append(body.Leases, l)
		}
	}
	v.render("topic", &page{Title: name, At: "topics", Live: true, Body: body})
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
	v.sampleOne(v.place) //nolint:contextcheck // a sample is the console's, and ends with it
	v.done(err, "topic?"+url.Values{"name": {topic}}.Encode())
}
