package console

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/incursa/watermill-outbox/forwarder"
	"github.com/incursa/watermill-outbox/stores"
)

// A storeRow is a store as it was when it was last looked at.
type storeRow struct {
	ID, Slug, Dialect string
	Sample            *sample // nil before the first
	Chart             chart
	Breaker           string // of the workers in this process
}

// storesPage lists the stores that the reader may view. It asks no database.
func (v *visit) storesPage() {
	all := v.places.all()
	if len(all) == 1 {
		http.Redirect(v.w, v.r, v.config.Prefix+"/s/"+all[0].slug+"/", http.StatusSeeOther)
		return
	}
	breakers := map[string]stores.StoreStatus{}
	if v.config.Status != nil {
		for _, s := range v.config.Status() {
			breakers[s.Store] = s
		}
	}
	var rows []storeRow
	body := struct {
		Rows                   []storeRow
		All, Down, Due, Failed int
		Sort                   string
	}{Sort: v.r.URL.Query().Get("sort")}
	for _, p := range all {
		if v.config.Authorize(v.r, Action{View, p.ID()}) != nil {
			continue
		}
		row := storeRow{ID: p.ID(), Slug: p.slug, Dialect: p.Database().Dialect.Name(), Sample: p.history.latest(), Chart: smallChart(p.history.points(""))}
		if b, known := breakers[p.ID()]; known && b.State == stores.Open {
			row.Breaker = "workers have left it alone since " + clock(b.Since)
		}
		switch {
		case row.Sample == nil:
		case row.Sample.Err != nil:
			body.Down++
		default:
			body.Due += row.Sample.Due
			body.Failed += row.Sample.Health.Failed
		}
		rows = append(rows, row)
	}
	body.All, body.Rows = len(rows), sorted(rows, body.Sort)
	v.render("stores", &page{Title: "Stores", At: "stores", Live: true, Body: body})
}

// sorted puts those that are down first, and the others in the order that was asked for.
func sorted(rows []storeRow, by string) []storeRow {
	value := func(r storeRow) int {
		switch {
		case r.Sample == nil:
			return 0
		case r.Sample.Err != nil:
			return 1 << 40
		case by == "due":
			return r.Sample.Due
		case by == "failed":
			return r.Sample.Health.Failed
		case by == "age":
			return int(r.Sample.Oldest / time.Millisecond)
		}
		return 0
	}
	slices.SortStableFunc(rows, func(a, b storeRow) int { return cmp.Compare(value(b), value(a)) })
	return rows
}

func (v *visit) forwardersPage() {
	type row struct {
		Name string
		forwarder.Status
	}
	var rows []row
	for _, name := range slices.Sorted(maps.Keys(v.config.Forwarders)) {
		rows = append(rows, row{name, v.config.Forwarders[name].Status()})
	}
	v.render("forwarders", &page{Title: "Forwarders", At: "forwarders", Live: true, Body: rows})
}

// activityPage lists acts on the stores that the reader may view.
func (v *visit) activityPage() {
	var list []operationState
	for _, o := range v.acts.all() {
		if v.config.Authorize(v.r, Action{View, o.Store}) == nil {
			list = append(list, o)
		}
	}
	v.render("activity", &page{Title: "Activity", At: "activity", Live: true, Body: list})
}

func (v *visit) actPage() {
	id, _ := strconv.Atoi(v.r.PathValue("act")) // 0 is none
	o, found := v.acts.find(id)
	if !found || v.config.Authorize(v.r, Action{View, o.Store}) != nil {
		v.notFound("There is no such act. Those of an earlier process are in the audit of their store.")
		return
	}
	kind, _ := actOf(o.Verb)
	v.render("operation", &page{Title: kind.Do, At: "activity", Busy: o.Running(), Body: struct {
		operationState
		Kind actKind
		Slug string
	}{o, kind, o.slug}})
}
