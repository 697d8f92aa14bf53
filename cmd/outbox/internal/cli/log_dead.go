package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/admin"
)

// A groupDead is a message that a consumer group has given up.
type groupDead struct {
	Position  int64  `json:"position"`
	MessageID string `json:"message_id"`
	UUID      string `json:"uuid"`
	Topic     string `json:"topic"`
	Attempts  int    `json:"attempts"`
	FailedAt  string `json:"failed_at"`
	Reason    string `json:"reason"`
	Requeued  bool   `json:"requeued"`

	from outbox.GroupDeadLetter
}

func (d groupDead) cells() []string {
	return []string{number(int(d.Position)), d.MessageID, d.Topic, number(d.Attempts), clock(d.from.FailedAt), yesNo(d.Requeued), short(d.Reason)}
}

func (a *app) logDeadCommand() *cobra.Command {
	return group("dead", "Messages that a consumer group has given up", a.logDeadListCommand(),
		a.onGroupDead("requeue", "Deliver messages to the group once more, out of order", "Requeue", "requeued", (*admin.Admin).RequeueGroupDeadLetters),
		a.onGroupDead("discard", "Forget messages that the group has given up", "Discard", "discarded", (*admin.Admin).DiscardGroupDeadLetters))
}

func (a *app) logDeadListCommand() *cobra.Command {
	var params outbox.GroupDeadLetterParams
	c := a.action(&cobra.Command{Use: "list GROUP", Short: "List messages that a consumer group has given up, in the order of the log", Args: arguments(cobra.ExactArgs(1))},
		func(ctx context.Context, db *database, args []string) error {
			of, err := db.admin()
			if err != nil {
				return err
			}
			o, err := db.outbox()
			if err != nil {
				return err
			}
			params.Group = args[0]
			letters, err := o.GroupDeadLetters(ctx, params)
			if err != nil {
				return err
			}
			if len(letters) == 0 {
				if err := knownGroup(ctx, of, args[0]); err != nil {
					return err
				}
			}
			var dead []groupDead
			for _, l := range letters {
				dead = append(dead, groupDead{l.Position, l.ID.String(), l.UUID, l.Topic, l.Attempts, moment(l.FailedAt), l.Reason, l.Requeued, l})
			}
			return list(a.render, "POSITION, ID, TOPIC, ATTEMPTS, FAILED, REQUEUED, ERROR", dead, "The group has given nothing up.")
		})
	c.Flags().StringVar(&params.Topic, "topic", "", "only messages of this topic")
	c.Flags().Int64Var(&params.After, "after", 0, "only messages after this position")
	limited(c, &params.Limit, 100, "the most messages to list, 1 to 1,000")
	return c
}

var errNoGroup = errors.New("there is no consumer group")

// knownGroup returns an error if there is no such consumer group, whose dead letters nobody would miss.
func knownGroup(ctx context.Context, of *admin.Admin, name string) error {
	groups, err := of.LogGroups(ctx)
	if err != nil || slices.ContainsFunc(groups, func(g admin.LogGroup) bool { return g.Group == name }) {
		return err
	}
	return fmt.Errorf("%w %q; see 'outbox log groups'", errNoGroup, name)
}

// onGroupDead does something to dead letters of a consumer group.
func (a *app) onGroupDead(name, what, verb, past string, do func(*admin.Admin, context.Context, admin.GroupActParams) (int, error)) *cobra.Command {
	var params admin.GroupActParams
	c := a.onAdmin(&cobra.Command{Use: name + " GROUP [POSITION...]", Short: what, Args: arguments(cobra.MinimumNArgs(1))},
		func(ctx context.Context, of *admin.Admin, args []string) error {
			which := "all dead letters"
			if params.All != (len(args) == 1) {
				return usage("say which: positions, or --all")
			}
			for _, text := range args[1:] {
				position, err := strconv.ParseInt(text, 10, 64)
				if err != nil {
					return usage("%q is no position in the log", text)
				}
				params.Positions = append(params.Positions, position)
				which = counted(len(params.Positions), "dead letter", "dead letters")
			}
			slices.Sort(params.Positions)
			params.Positions = slices.Compact(params.Positions)
			if err := a.confirm(ctx, "%s %s of consumer group %q?", verb, which, args[0]); err != nil {
				return err
			}
			params.Group, params.By = args[0], a.actor()
			n, err := do(of, ctx, params)
			if err == nil && n == 0 {
				err = knownGroup(ctx, of, args[0])
			}
			if err != nil {
				return err
			}
			if err := a.done("%s "+past+".", n, "dead letter", "dead letters"); err != nil || params.All || n == len(params.Positions) {
				return err
			}
			return &notThereError{n, len(params.Positions), []string{"the group has no other dead letter at these positions; see 'outbox log dead list'"}}
		})
	c.Flags().StringVar(&params.Topic, "topic", "", "only messages of this topic")
	c.Flags().BoolVar(&params.All, "all", false, "all dead letters of the group")
	return c
}
