package admin

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/incursa/watermill-outbox/internal/base"
	"github.com/incursa/watermill-outbox/internal/field"
	"github.com/incursa/watermill-outbox/internal/limits"
)

// ErrNotPaused is returned by Resume for a topic that is not paused.
var ErrNotPaused = errors.New("admin: the topic is not paused")

// maxReason is in characters.
const maxReason = 400

// PauseParams say what to pause.
type PauseParams struct {
	// Topic is the topic to pause. Required.
	Topic string

	// By is who does it. Defaults to an empty name.
	By string

	// Reason is shown to whoever wonders why nothing moves, at most 400 characters. Defaults to none.
	Reason string
}

func (p *PauseParams) check() error {
	if p.Topic == "" {
		return field.Bad("PauseParams.Topic", "is empty")
	}
	if err := field.Key("PauseParams.Topic", p.Topic); err != nil {
		return err
	}
	if err := field.Problem("PauseParams.Reason", limits.AnyLength(p.Reason)); err != nil {
		return err
	}
	if len([]rune(p.Reason)) > maxReason {
		return field.Bad("PauseParams.Reason", "is longer than %d characters", maxReason)
	}
	return field.Text("PauseParams.By", p.By)
}

// Pause keeps every worker from claiming messages of a topic, as soon as it returns. What workers have already claimed is
// handled, settled, and given back if a lease expires; publishing goes on, and so do consumer groups of the log, which do not
// claim. To pause a topic that is paused changes By and Reason, not since when. It returns a *outbox.FieldError for bad
// parameters.
func (a *Admin) Pause(ctx context.Context, params PauseParams) error {
	if err := params.check(); err != nil {
		return err
	}
	selection := "topic '" + params.Topic + "'"
	if params.Reason != "" {
		selection += ": " + params.Reason
	}
	arg := struct {
		TopicKey int64  `json:"topic_key"`
		Topic    string `json:"topic"`
		By       string `json:"by"`
		Reason   string `json:"reason"`
	}{base.TopicKey(params.Topic), params.Topic, params.By, params.Reason}
	_, err := a.recorded(ctx, &auditArg{By: params.By, Act: "pause", Selection: selection}, func(ctx context.Context, x base.Executor) (int, error) {
		return 1, a.run.Run(ctx, x, "outbox_topic_pause", arg, nil)
	})
	return err
}

// ResumeParams say what to resume.
type ResumeParams struct {
	// Topic is the topic to resume. Required.
	Topic string

	// By is who does it. Defaults to an empty name.
	By string
}

// Resume lets workers claim messages of a topic again, which they do the next time they poll. It returns ErrNotPaused, or a
// *outbox.FieldError for bad parameters.
func (a *Admin) Resume(ctx context.Context, params ResumeParams) error {
	if params.Topic == "" {
		return field.Bad("ResumeParams.Topic", "is empty")
	}
	if err := field.Key("ResumeParams.Topic", params.Topic); err != nil {
		return err
	}
	if err := field.Text("ResumeParams.By", params.By); err != nil {
		return err
	}
	arg := struct {
		TopicKey int64 `json:"topic_key"`
	}{base.TopicKey(params.Topic)}
	record := &auditArg{By: params.By, Act: "resume", Selection: "topic '" + params.Topic + "'"}
	_, err := a.recorded(ctx, record, func(ctx context.Context, x base.Executor) (int, error) {
		var resumed bool
		err := a.run.Run(ctx, x, "outbox_topic_resume", arg, func(rows *sql.Rows) error { return rows.Scan(&resumed) })
		if err == nil && !resumed {
			err = ErrNotPaused
		}
		return 1, err
	})
	return err
}

// A PausedTopic is a topic of which nothing is claimed.
type PausedTopic struct {
	Topic  string
	Since  time.Time
	By     string
	Reason string
}

// Paused lists the paused topics, those paused first before others.
func (a *Admin) Paused(ctx context.Context) (paused []PausedTopic, err error) {
	err = a.call(ctx, "outbox_topic_paused", struct{}{}, func(rows *sql.Rows) error {
		var p PausedTopic
		var since sql.NullInt64
		err := rows.Scan(&p.Topic, &since, &p.By, &p.Reason)
		p.Since = fromMillis(since)
		paused = append(paused, p)
		return err
	})
	slices.SortFunc(paused, func(a, b PausedTopic) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Topic, b.Topic)) })
	return slices.Compact(paused), err
}
