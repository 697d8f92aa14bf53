package console

import (
	"github.com/incursa/watermill-outbox/admin"
)

// A topicRow is a topic with its last hour.
type topicRow struct {
	topicSample
	Chart chart
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
		rows = append(rows, topicRow{t, smallChart(v.place.history.points(t.Topic))})
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
	}{Charts: largeCharts(v.place.history.points(name))}
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
