package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/incursa/watermill-outbox/admin"
)

// A reader is a consumer group in a topic of the log.
type reader struct {
	Group    string  `json:"group"`
	Topic    string  `json:"topic"`
	Position int64   `json:"position"`
	Behind   int     `json:"behind"`
	Lag      float64 `json:"lag_seconds"`
	Dead     int     `json:"dead"`
	Attempts int     `json:"attempts"`
	Active   bool    `json:"active"`

	from admin.LogGroup
}

func (g reader) cells() []string {
	topic := g.Topic
	if topic == "" {
		topic = "(all)"
	}
	return []string{g.Group, topic, number(int(g.Position)), upTo(g.Behind), span(g.from.Lag), upTo(g.Dead), yesNo(g.Active)}
}

func (a *app) logCommand() *cobra.Command {
	return group("log", "The log, and the consumer groups that read it", a.logGroupsCommand(), a.logLagCommand(), a.logSkipCommand(),
		a.logDeadCommand(), a.logForgetCommand())
}

// listGroups lists those that a test lets through, and returns how many.
func (a *app) listGroups(ctx context.Context, db *database, through func(admin.LogGroup) bool, none string) (int, error) {
	of, err := db.admin()
	if err != nil {
		return 0, err
	}
	groups, err := of.LogGroups(ctx)
	if err != nil {
		return 0, err
	}
	var readers []reader
	for _, g := range groups {
		if through(g) {
			readers = append(readers, reader{g.Group, g.Topic, g.Position, g.Behind, g.Lag.Seconds(), g.Dead, g.Attempts, g.Active, g})
		}
	}
	return len(readers), list(a.render, "GROUP, TOPIC, POSITION, BEHIND, LAG, DEAD, ACTIVE", readers, none)
}

func (a *app) logGroupsCommand() *cobra.Command {
	return a.action(&cobra.Command{Use: "groups", Short: "List consumer groups, and how far behind they are", Args: arguments(cobra.NoArgs)},
		func(ctx context.Context, db *database, _ []string) error {
			_, err := a.listGroups(ctx, db, func(admin.LogGroup) bool { return true }, "There is no consumer group.")
			return err
		})
}

func (a *app) logLagCommand() *cobra.Command {
	most := age{time.Minute, "1m"}
	c := a.action(&cobra.Command{Use: "lag", Short: "List consumer groups that are behind by too much; the exit code is then 1", Args: arguments(cobra.NoArgs)},
		func(ctx context.Context, db *database, _ []string) error {
			n, err := a.listGroups(ctx, db, func(g admin.LogGroup) bool { return g.Lag > most.duration }, "No consumer group is behind by more than "+most.String()+".")
			if err == nil && n > 0 {
				return errTrouble
			}
			return err
		})
	c.Flags().Var(&most, "max", "how long a message may be in the log before a group has passed it")
	return c
}

func (a *app) logSkipCommand() *cobra.Command {
	return a.onAdmin(&cobra.Command{Use: "skip GROUP TOPIC", Short: "Skip the message that holds a consumer group up", Args: arguments(cobra.ExactArgs(2)),
		Long: `Skip the message that a consumer group has tried and not passed. It becomes a dead letter of the group, and the group's reader
goes on after it when it next renews its lease.`},
		func(ctx context.Context, of *admin.Admin, args []string) error {
			if err := a.confirm(ctx, "Skip the message that consumer group %q is at in topic %q?", args[0], args[1]); err != nil {
				return err
			}
			m, err := of.SkipGroupHead(ctx, admin.SkipGroupHeadParams{Group: args[0], Topic: args[1], By: a.actor()})
			if err != nil {
				return err
			}
			return a.render.result(struct {
				Position  int64  `json:"position"`
				MessageID string `json:"message_id"`
				UUID      string `json:"uuid"`
			}{m.Position, m.ID.String(), m.UUID}, fmt.Sprintf("Message %s at position %d became a dead letter of the group.", m.ID, m.Position))
		})
}

func (a *app) logForgetCommand() *cobra.Command {
	return a.onAdmin(&cobra.Command{Use: "forget GROUP", Short: "Forget a consumer group that no longer exists", Args: arguments(cobra.ExactArgs(1)),
		Long: `Forget a consumer group that no longer exists, with its positions and dead letters. Until then the log keeps what the group
has not passed. A group of that name that comes back begins with the oldest message.`},
		func(ctx context.Context, of *admin.Admin, args []string) error {
			if err := a.confirm(ctx, "Forget consumer group %q, with its positions and dead letters?", args[0]); err != nil {
				return err
			}
			if err := of.ForgetGroup(ctx, admin.ForgetGroupParams{Group: args[0], By: a.actor()}); err != nil {
				return err
			}
			return a.render.say("The group is forgotten.")
		})
}
