package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/admin"
)

func (a *app) purgeCommand() *cobra.Command {
	var older age
	var failed, log bool
	c := a.onAdmin(&cobra.Command{Use: "purge --older-than AGE", Short: "Delete messages that ended longer ago", Args: arguments(cobra.NoArgs),
		Annotations: map[string]string{dryRuns: "yes"},
		Long: `Delete messages that are done, with --failed those that have failed, or with --log those of the log that every consumer
group has passed. Messages that a pending join or the log needs are kept. The janitor of a Subscriber does the same.`},
		func(ctx context.Context, of *admin.Admin, _ []string) error {
			if a.dryRun {
				return a.countPurge(ctx, of, older.duration, failed)
			}
			what := "all messages that were done"
			if log {
				what = "all messages of the log that were published"
			}
			if failed && !a.yes {
				n, err := oldLetters(ctx, of, older.duration)
				if err != nil {
					return err
				}
				if n == 0 {
					return a.done("%s deleted.", 0, "message was", "messages were")
				}
				what = counted(n, "dead letter", "dead letters") + " that failed"
			}
			if err := a.confirm(ctx, "Delete %s more than %s ago?", what, older.String()); err != nil {
				return err
			}
			bar := a.begin("Purging", -1)
			n, err := of.Purge(ctx, admin.PurgeParams{By: a.actor(), PurgeParams: outbox.PurgeParams{OlderThan: older.duration, Failed: failed, Log: log}})
			bar.end()
			if err != nil {
				return err
			}
			return a.done("%s deleted.", n, "message was", "messages were")
		})
	older.required(c)
	c.Flags().BoolVar(&failed, "failed", false, "those that have failed, instead of those that are done")
	c.Flags().BoolVar(&log, "log", false, "those of the log")
	c.MarkFlagsMutuallyExclusive("failed", "log")
	return c
}

// countPurge counts dead letters. Messages that are done are in no index by age, and are not counted.
func (a *app) countPurge(ctx context.Context, of *admin.Admin, older time.Duration, failed bool) error {
	if !failed {
		return usage("only purge --failed has a --dry-run")
	}
	n, err := oldLetters(ctx, of, older)
	if err != nil {
		return err
	}
	return a.done("%s would be deleted.", n, "dead letter", "dead letters")
}

// oldLetters is how many messages failed longer ago.
func oldLetters(ctx context.Context, of *admin.Admin, older time.Duration) (int, error) {
	health, err := of.Health(ctx)
	if err != nil {
		return 0, err
	}
	result, err := of.Discard(ctx, admin.ActParams{All: true, Filter: admin.Filter{Until: health.Now.Add(-older)}, DryRun: true})
	return result.Matched, err
}
