package console

import (
	"context"
	"errors"
	"net/http"
	"strings"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/admin"
	"github.com/incursa/watermill-outbox/internal/field"
	"github.com/incursa/watermill-outbox/join"
)

const (
	stepsShown = 200 // of a join
	joinsDeep  = 3   // within each other
	joinsShown = 30  // on one page
)

// A joinTable is a page of joins, with where the next one begins.
type joinTable struct {
	Joins []join.Join
	More  string
}

// readJoins are join.Coordinator.Pending and its like.
type readJoins func(ctx context.Context, x outbox.Executor, from join.ID, limit int) ([]join.Join, error)

// joinsPage lists the joins with a grouping key, or those that are pending and those that started last.
func (v *visit) joinsPage() {
	q := v.r.URL.Query()
	key := strings.TrimSpace(q.Get("key"))
	if id, err := join.ParseID(key); err == nil { // an id is as good
		http.Redirect(v.w, v.r, v.config.Prefix+"/s/"+v.place.slug+"/join/"+id.String(), http.StatusSeeOther)
		return
	}
	var body struct {
		Key                    string
		Group, Pending, Recent *joinTable
	}
	body.Key = key
	ctx, cancel := v.context()
	defer cancel()
	var err error
	joins := v.place.joins
	if key != "" {
		body.Group, err = v.joinTable(ctx, "after", func(ctx context.Context, x outbox.Executor, after join.ID, limit int) ([]join.Join, error) {
			return joins.ByGroup(ctx, x, key, after, limit)
		})
	} else {
		if !q.Has("before") {
			body.Pending, err = v.joinTable(ctx, "after", joins.Pending)
		}
		if !q.Has("after") && err == nil {
			body.Recent, err = v.joinTable(ctx, "before", joins.Recent)
		}
	}
	if err != nil {
		v.fail(err)
		return
	}
	v.render("joins", &page{Title: "Joins", At: "joins", Live: true, Body: body})
}

// joinTable reads the page that begins at the id in a parameter, if it is there.
func (v *visit) joinTable(ctx context.Context, parameter string, read readJoins) (*joinTable, error) {
	var from join.ID
	if text := v.r.URL.Query().Get(parameter); text != "" {
		var err error
		if from, err = join.ParseID(text); err != nil {
			return nil, field.Bad(parameter, "%q is no id of a join", text)
		}
	}
	joins, err := read(ctx, nil, from, pageSize)
	if err != nil {
		return nil, err
	}
	table := &joinTable{Joins: joins}
	if len(joins) == pageSize {
		table.More = joins[pageSize-1].ID.String()
	}
	return table, nil
}

// A node is a join with its steps, of which some are joins again.
type node struct {
	join.Join
	Steps   []stepNode
	More    bool // it has more than are shown
	Missing int  // expected, and not even attached
	Pending int  // shown and not ended
}

type stepNode struct {
	join.Step
	Message *outbox.Record // nil if it is not in the outbox
	Join    *node
}

// Waits says whether the step keeps its join waiting.
func (s stepNode) Waits() bool { return s.Status == join.StepPending }

// Percent of the expected steps that have ended.
func (n *node) Percent(steps int) int {
	if n.ExpectedSteps == 0 {
		return 0
	}
	return min(100, 100*steps/n.ExpectedSteps)
}

func (v *visit) joinPage() {
	id, err := join.ParseID(v.r.PathValue("id"))
	if err != nil {
		v.fail(join.ErrNotFound)
		return
	}
	ctx, cancel := v.context()
	defer cancel()
	left := joinsShown
	tree, err := v.place.tree(ctx, id, joinsDeep, &left)
	if err != nil {
		v.fail(err)
		return
	}
	v.render("join", &page{Title: "Join", At: "joins", Live: true, Body: tree})
}

// tree reads a join and the joins that are its steps.
func (p *place) tree(ctx context.Context, id join.ID, deep int, left *int) (*node, error) {
	*left--
	j, err := p.joins.Get(ctx, nil, id)
	if err != nil {
		return nil, err
	}
	steps, err := p.joins.Steps(ctx, nil, id, outbox.MessageID{}, stepsShown)
	if err != nil {
		return nil, err
	}
	ids := make([]outbox.MessageID, len(steps))
	for i, s := range steps {
		ids[i] = s.MessageID
	}
	records, err := p.Outbox().Get(ctx, ids...)
	if err != nil {
		return nil, err
	}
	known := map[outbox.MessageID]*outbox.Record{}
	for i := range records {
		known[records[i].ID] = &records[i]
	}
	n := &node{Join: j, More: len(steps) == stepsShown}
	for _, s := range steps {
		child := stepNode{Step: s, Message: known[s.MessageID]}
		if child.Message == nil && s.ByReport && deep > 1 && *left > 0 {
			if child.Join, err = p.tree(ctx, join.ID(s.MessageID), deep-1, left); err != nil && !errors.Is(err, join.ErrNotFound) {
				return nil, err
			}
		}
		if child.Waits() {
			n.Pending++
		}
		n.Steps = append(n.Steps, child)
	}
	if !n.More && j.Status == join.Pending && !j.Open {
		n.Missing = max(0, j.ExpectedSteps-len(steps))
	}
	return n, nil
}

// actOnJoin seals or cancels a join.
func (v *visit) actOnJoin() {
	if !v.mayPost(Joins) {
		return
	}
	id, err := join.ParseID(v.r.PostForm.Get("id"))
	if err != nil {
		v.fail(field.Bad("id", "is no id of a join"))
		return
	}
	ctx, cancel := v.context()
	defer cancel()
	params := admin.JoinParams{ID: id, By: v.config.Actor(v.r)}
	switch do := v.r.PostForm.Get("do"); do {
	case "seal":
		err = v.place.admin.SealJoin(ctx, params)
	case "cancel":
		err = v.place.admin.CancelJoin(ctx, params)
	default:
		err = field.Bad("do", "%q is nothing that can be done with a join", do)
	}
	v.done(err, "join/"+id.String())
}

// mayPost reads the form of somebody who has the right, and answers everybody else.
func (v *visit) mayPost(right Right) bool {
	if err := v.authorize(right); err != nil {
		v.refuse(Action{right, v.place.ID()}, err)
		return false
	}
	if err := v.r.ParseForm(); err != nil {
		v.fail(field.Bad("form", "cannot be read: %v", err))
		return false
	}
	return true
}

// done goes on to a page of the store, or says what went wrong.
func (v *visit) done(err error, next string) {
	v.looks.forget(v.place)
	if err != nil {
		v.fail(err)
		return
	}
	v.logger.Info("Something was changed in the console", map[string]any{
		"store": v.place.ID(), "path": v.r.URL.Path, "act": v.r.PostForm.Get("do"), "actor": v.config.Actor(v.r),
	})
	v.watchers.tell()
	http.Redirect(v.w, v.r, v.config.Prefix+"/s/"+v.place.slug+"/"+next, http.StatusSeeOther)
}
