package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/incursa/watermill-outbox/admin"
)

// A pause is a row of topic paused.
type pause struct {
	Topic  string `json:"topic"`
	Since  string `json:"since"`
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`

	from admin.PausedTopic
}

func (p pause) cells() []string { return []string{p.Topic, clock(p.from.Since), p.By, short(p.Reason)} }

func (a *app) topicCommand() *cobra.Command {
	var reason string
	pauses := a.onAdmin(&cobra.Command{Use: "pause TOPIC", Short: "Keep all workers from claiming messages of a topic", Args: arguments(cobra.ExactArgs(1)),
		Long:    `Keep all workers from claiming messages of a topic. What they have claimed already is handled; publishing goes on.`,
		Example: `  outbox topic pause mails --reason "the provider is down"`},
		func(ctx context.Context, of *admin.Admin, args []string) error {
			odd, err := pausedAlready(ctx, of, args[0])
			if err != nil {
				return err
			}
			if err := of.Pause(ctx, admin.PauseParams{Topic: args[0], By: a.actor(), Reason: reason}); err != nil {
				return err
			}
			if odd == "" {
				odd = unknownTopic(ctx, of, args[0])
			}
			return a.render.result(struct {
				Paused string `json:"paused"`
			}{args[0]}, fmt.Sprintf("Topic %q is paused.", args[0])+odd)
		})
	pauses.Flags().StringVar(&reason, "reason", "", "why, for those who wonder why nothing moves")
	resumes := a.onAdmin(&cobra.Command{Use: "resume TOPIC", Short: "Let workers claim messages of a paused topic again", Args: arguments(cobra.ExactArgs(1))},
		func(ctx context.Context, of *admin.Admin, args []string) error {
			if err := of.Resume(ctx, admin.ResumeParams{Topic: args[0], By: a.actor()}); err != nil {
				return err
			}
			return a.render.result(struct {
				Resumed string `json:"resumed"`
			}{args[0]}, fmt.Sprintf("Topic %q goes on.", args[0]))
		})
	paused := a.onAdmin(&cobra.Command{Use: "paused", Short: "List the paused topics", Args: arguments(cobra.NoArgs)},
		func(ctx context.Context, of *admin.Admin, _ []string) error {
			topics, err := of.Paused(ctx)
			if err != nil {
				return err
			}
			var pauses []pause
			for _, p := range topics {
				pauses = append(pauses, pause{p.Topic, moment(p.Since), p.By, p.Reason, p})
			}
			return list(a.render, "TOPIC, SINCE, BY, REASON", pauses, "No topic is paused.")
		})
	return group("topic", "Pause and resume topics", pauses, resumes, paused)
}

// pausedAlready says what a pause takes the place of.
func pausedAlready(ctx context.Context, of *admin.Admin, name string) (string, error) {
	paused, err := of.Paused(ctx)
	if err != nil {
		return "", err
	}
	for _, p := range paused {
		if p.Topic == name {
			return escape(" It was already, "+pausedBy(p.Since, p.By, p.Reason)+"; the reason and who gave it are new.", false), nil
		}
	}
	return "", nil
}

// unknownTopic says that a name may be mistaken. The topic is paused whether or not that can be found out.
func unknownTopic(ctx context.Context, of *admin.Admin, name string) string {
	const look = 10_000 // enough to find a topic in use
	page, err := of.Messages(ctx, admin.ListParams{Filter: admin.Filter{Topic: name}, Limit: 1, Examine: look})
	switch {
	case err != nil || len(page.Messages) > 0:
		return ""
	case !page.Next.IsZero():
		return fmt.Sprintf(" None of the last %s messages is of this topic; names are exact.", number(page.Examined))
	default:
		return " No message of this topic is here; names are exact."
	}
}

// onAdmin is an action on the database's Admin.
func (a *app) onAdmin(c *cobra.Command, with func(ctx context.Context, of *admin.Admin, args []string) error) *cobra.Command {
	return a.action(c, func(ctx context.Context, db *database, args []string) error {
		of, err := db.admin()
		if err != nil {
			return err
		}
		return with(ctx, of, args)
	})
}
