package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/incursa/watermill-outbox/admin"
)

func (a *app) delayCommand() *cobra.Command {
	var by age
	var to string
	t := &act{app: a, verb: "Delay", past: "delayed", ready: true, under: "message"}
	t.do = func(of *admin.Admin, ctx context.Context, params admin.ActParams) (admin.Result, error) {
		due, err := parseMoment(to)
		if err != nil {
			return admin.Result{}, err
		}
		return of.Delay(ctx, admin.DelayParams{ActParams: params, Delay: by.duration, DueAt: due})
	}
	c := t.command("delay [ID...]", "Make ready messages due at another time, by ids or by a filter")
	c.Example = `  outbox message delay --topic mails --for 1h
  outbox message delay --topic mails --to 2006-01-02T15:04:05Z --yes
  outbox message delay 0198f0c4-5a0b-7000-8000-000000000000 --to now`
	c.Flags().Var(&by, "for", "how long they wait from now on: 90m, or 7d")
	c.Flags().StringVar(&to, "to", "", "when they become due: now, or 2006-01-02T15:04:05Z")
	c.MarkFlagsOneRequired("for", "to")
	c.MarkFlagsMutuallyExclusive("for", "to")
	return c
}

// parseMoment reads a moment to come, or now, which is any that has passed.
func parseMoment(text string) (time.Time, error) {
	switch text {
	case "":
		return time.Time{}, nil
	case "now":
		return time.Unix(0, 0), nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return time.Time{}, usage("--to %q is no time; write now or 2006-01-02T15:04:05Z", text)
	}
	return t, nil
}
