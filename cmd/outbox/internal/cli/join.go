package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/admin"
	"github.com/incursa/watermill-outbox/join"
)

// A fanIn is a join.
type fanIn struct {
	ID            string `json:"id"`
	GroupingKey   string `json:"grouping_key,omitempty"`
	Status        string `json:"status"`
	Open          bool   `json:"open"`
	Expected      int    `json:"expected_steps"`
	Completed     int    `json:"completed_steps"`
	Failed        int    `json:"failed_steps"`
	Quorum        int    `json:"quorum,omitempty"`
	FailFast      bool   `json:"fail_fast,omitempty"`
	Metadata      string `json:"metadata,omitempty"`
	CreatedAt     string `json:"created_at"`
	LastUpdatedAt string `json:"last_updated_at"`

	from join.Join
}

func newFanIn(j join.Join) fanIn {
	return fanIn{j.ID.String(), j.GroupingKey, j.Status.String(), j.Open, j.ExpectedSteps, j.CompletedSteps, j.FailedSteps, j.Quorum,
		j.FailFast, j.Metadata, moment(j.CreatedAt), moment(j.LastUpdatedAt), j}
}

func (j fanIn) progress() string {
	expected := number(j.Expected)
	if j.Open {
		expected = "open"
	}
	return fmt.Sprintf("%s completed, %s failed of %s", number(j.Completed), number(j.Failed), expected)
}

func (j fanIn) cells() []string {
	return []string{j.ID, j.GroupingKey, j.Status, j.progress(), clock(j.from.CreatedAt), clock(j.from.LastUpdatedAt)}
}

// A step is a step of a join.
type step struct {
	MessageID  string `json:"message_id"`
	Status     string `json:"status"`
	ByReport   bool   `json:"by_report"`
	AttachedAt string `json:"attached_at"`

	from join.Step
}

func (s step) cells() []string {
	return []string{s.MessageID, s.Status, yesNo(s.ByReport), clock(s.from.CreatedAt)}
}

// joinAction is an action on the join that is named by its id.
func (a *app) joinAction(use, short string, f func(context.Context, *join.Coordinator, join.ID) error) *cobra.Command {
	return a.action(&cobra.Command{Use: use + " ID", Short: short, Args: arguments(cobra.ExactArgs(1))},
		func(ctx context.Context, db *database, args []string) error {
			id, err := join.ParseID(args[0])
			if err != nil {
				return usage("%q is no id of a join", args[0])
			}
			joins, err := db.joins()
			if err != nil {
				return err
			}
			return f(ctx, joins, id)
		})
}

// joinAct is an act on a join that is recorded. To cancel one cannot be undone, and to seal one can be repeated.
func (a *app) joinAct(verb, short, past string, do func(*admin.Admin, context.Context, admin.JoinParams) error) *cobra.Command {
	return a.onAdmin(&cobra.Command{Use: verb + " ID", Short: short, Args: arguments(cobra.ExactArgs(1))},
		func(ctx context.Context, of *admin.Admin, args []string) error {
			id, err := join.ParseID(args[0])
			if err != nil {
				return usage("%q is no id of a join", args[0])
			}
			if verb == "cancel" {
				if err := a.confirm(ctx, "Cancel join %s?", id); err != nil {
					return err
				}
			}
			if err := do(of, ctx, admin.JoinParams{ID: id, By: a.actor()}); err != nil {
				return err
			}
			return a.render.say("The join is " + past + ".")
		})
}

func (a *app) joinCommand() *cobra.Command {
	show := a.joinAction("show", "Show a join", func(ctx context.Context, joins *join.Coordinator, id join.ID) error {
		known, err := joins.Get(ctx, nil, id)
		if err != nil {
			return err
		}
		j := newFanIn(known)
		return a.render.show(j, []fact{{"id", j.ID}, {"grouping key", j.GroupingKey}, {"status", j.Status}, {"steps", j.progress()},
			{"started", clock(known.CreatedAt)}, {"updated", clock(known.LastUpdatedAt)}, {"metadata", j.Metadata}})
	})
	seal := a.joinAct("seal", "Close an open join: it then expects the steps that it has", "sealed", (*admin.Admin).SealJoin)
	cancel := a.joinAct("cancel", "End a join as cancelled: what waits for it takes the failure path", "cancelled", (*admin.Admin).CancelJoin)
	return group("join", "Joins: groups of messages whose end is waited for", a.joinListCommand(), show, a.joinStepsCommand(), seal, cancel, a.joinPurgeCommand())
}

func (a *app) joinListCommand() *cobra.Command {
	var key, after string
	var pending bool
	var limit int
	c := a.action(&cobra.Command{Use: "list [--pending | --group KEY]", Args: arguments(cobra.NoArgs),
		Short: "List joins, the newest first; those that are pending or have a grouping key, the oldest first"},
		func(ctx context.Context, db *database, _ []string) error {
			var from join.ID
			var err error
			if pending && key != "" {
				return usage("--pending and --group exclude each other")
			}
			if after != "" {
				if from, err = join.ParseID(after); err != nil {
					return usage("--after %q is no id of a join", after)
				}
			}
			joins, err := db.joins()
			if err != nil {
				return err
			}
			read := joins.Recent
			switch {
			case pending:
				read = joins.Pending
			case key != "":
				read = func(ctx context.Context, x outbox.Executor, after join.ID, limit int) ([]join.Join, error) {
					return joins.ByGroup(ctx, x, key, after, limit)
				}
			}
			page, err := read(ctx, nil, from, limit)
			if err != nil {
				return err
			}
			var found []fanIn
			for _, j := range page {
				found = append(found, newFanIn(j))
			}
			if err := list(a.render, "ID, GROUPING KEY, STATUS, STEPS, STARTED, UPDATED", found, none("join", key != "" || pending || after != "")); err != nil || len(page) < limit {
				return err
			}
			return a.render.say("\nMore: the same command with --after %s", page[len(page)-1].ID)
		})
	c.Flags().StringVar(&key, "group", "", "only joins with this grouping key")
	c.Flags().BoolVar(&pending, "pending", false, "only joins that have not ended")
	c.Flags().StringVar(&after, "after", "", "the last id of the page before")
	limited(c, &limit, 100, "the most joins to list, 1 to 1,000")
	return c
}

func (a *app) joinStepsCommand() *cobra.Command {
	var after string
	var limit int
	c := a.joinAction("steps", "List the steps of a join", func(ctx context.Context, joins *join.Coordinator, id join.ID) error {
		var from outbox.MessageID
		if after != "" {
			if err := from.UnmarshalText([]byte(after)); err != nil {
				return usage("--after %q is no message id", after)
			}
		}
		page, err := joins.Steps(ctx, nil, id, from, limit)
		if err != nil {
			return err
		}
		var steps []step
		for _, s := range page {
			steps = append(steps, step{s.MessageID.String(), s.Status.String(), s.ByReport, moment(s.CreatedAt), s})
		}
		if err := list(a.render, "MESSAGE, STATUS, BY REPORT, ATTACHED", steps, "The join has no steps, or does not exist."); err != nil || len(page) < limit {
			return err
		}
		return a.render.say("\nMore: the same command with --after %s", page[len(page)-1].MessageID)
	})
	c.Flags().StringVar(&after, "after", "", "the last message of the page before")
	limited(c, &limit, 100, "the most steps to list, 1 to 1,000")
	return c
}

func (a *app) joinPurgeCommand() *cobra.Command {
	var older age
	c := a.onAdmin(&cobra.Command{Use: "purge --older-than AGE", Short: "Delete joins that ended longer ago, with their steps", Args: arguments(cobra.NoArgs)},
		func(ctx context.Context, of *admin.Admin, _ []string) error {
			if err := a.confirm(ctx, "Delete all joins that ended more than %s ago?", older.String()); err != nil {
				return err
			}
			n, err := of.PurgeJoins(ctx, admin.PurgeJoinsParams{OlderThan: older.duration, By: a.actor()})
			if err != nil {
				return err
			}
			return a.done("%s deleted.", n, "join was", "joins were")
		})
	older.required(c)
	return c
}
