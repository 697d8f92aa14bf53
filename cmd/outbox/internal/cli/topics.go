package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	outbox "github.com/incursa/watermill-outbox"
)

// A topic is a row of topics.
type topic struct {
	At             string  `json:"at"` // when they were counted
	Topic          string  `json:"topic"`
	Waiting        int     `json:"waiting"`
	WaitingCapped  bool    `json:"waiting_capped,omitempty"` // there may be more
	Age            float64 `json:"age_seconds"`
	Oldest         string  `json:"oldest"`
	BlockedStreams int     `json:"blocked_streams"`
	Failed         int     `json:"failed"`
	PausedSince    string  `json:"paused_since,omitempty"`
	PausedBy       string  `json:"paused_by,omitempty"`
	PauseReason    string  `json:"pause_reason,omitempty"`

	backlog outbox.TopicBacklog
}

func (t topic) cells() []string {
	age := ""
	if t.Waiting > 0 {
		age = span(t.backlog.Age)
	}
	paused := ""
	if !t.backlog.PausedSince.IsZero() {
		paused = pausedBy(t.backlog.PausedSince, t.backlog.PausedBy, t.backlog.PauseReason)
	}
	return []string{t.Topic, upTo(t.Waiting), age, upTo(t.BlockedStreams), upTo(t.Failed), short(paused)}
}

// pausedBy says since when a topic is paused, by whom, and why.
func pausedBy(since time.Time, by, reason string) string {
	text := "since " + clock(since)
	if by != "" {
		text += " by " + by
	}
	if reason != "" {
		text += ": " + reason
	}
	return text
}

func (a *app) topicsCommand() *cobra.Command {
	var watch bool
	var every time.Duration
	c := a.action(&cobra.Command{Use: "topics", Short: "List topics with due messages, blocked streams or dead letters", Args: arguments(cobra.NoArgs)},
		func(ctx context.Context, db *database, _ []string) error {
			if every < 100*time.Millisecond {
				return usage("--interval is less than 100ms")
			}
			o, err := db.outbox()
			if err != nil {
				return err
			}
			if !watch {
				return a.listTopics(ctx, o)
			}
			return a.watchTopics(ctx, o, every)
		})
	c.Flags().BoolVarP(&watch, "watch", "w", false, "list them again and again")
	c.Flags().DurationVar(&every, "interval", 2*time.Second, "how often --watch lists them")
	return c
}

func (a *app) listTopics(ctx context.Context, o *outbox.Outbox) error {
	at := moment(a.Now())
	backlogs, err := o.Topics(ctx)
	if err != nil {
		return err
	}
	slices.SortFunc(backlogs, func(a, b outbox.TopicBacklog) int { return cmp.Compare(a.Topic, b.Topic) })
	var topics []topic
	for _, b := range backlogs {
		topics = append(topics, topic{at, b.Topic, b.Waiting, b.Waiting >= mostCounted, b.Age.Seconds(), moment(b.Oldest), b.BlockedStreams, b.Failed,
			moment(b.PausedSince), b.PausedBy, b.PauseReason, b})
	}
	return list(a.render, "TOPIC, DUE, AGE, BLOCKED STREAMS, DEAD LETTERS, PAUSED", topics, "Nothing is due, blocked or dead.")
}

// watchTopics goes on until it is interrupted, which is no error. Once a round has worked, none that fails ends it.
func (a *app) watchTopics(ctx context.Context, o *outbox.Outbox, every time.Duration) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for worked := false; ; {
		if a.Shows && !a.render.json {
			fmt.Fprint(a.Out, "\x1b[H\x1b[2J")
		}
		if err := a.render.say("%s", clock(a.Now())); err != nil {
			return err
		}
		switch err := a.listTopics(ctx, o); {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // it was told to end
		case err != nil && !worked:
			return err
		case err != nil:
			a.complain(err)
		default:
			worked = true
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}
