package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/incursa/watermill-outbox/admin"
)

// An errorGroup is dead letters with the same error.
type errorGroup struct {
	Topic   string `json:"topic"`
	Error   string `json:"error"`
	Count   int    `json:"count"`
	First   string `json:"first"`
	Last    string `json:"last"`
	Example string `json:"example"`

	from admin.ErrorGroup
}

func (g errorGroup) cells() []string {
	return []string{number(g.Count), g.Topic, clock(g.from.First), clock(g.from.Last), short(g.Error)}
}

func (a *app) deadCommand() *cobra.Command {
	requeue := &act{app: a, verb: "Requeue", past: "requeued", do: (*admin.Admin).Requeue, under: "dead"}
	discard := &act{app: a, verb: "Discard", past: "discarded", do: (*admin.Admin).Discard, final: true, under: "dead"}
	return group("dead", "Dead letters: messages that have failed for good", a.deadListCommand(), a.deadErrorsCommand(), a.showCommand(),
		requeue.command("requeue [ID...]", "Make dead letters ready again, by ids or by a filter"),
		discard.command("discard [ID...]", "Delete dead letters, by ids or by a filter"), a.editCommand())
}

func (a *app) deadListCommand() *cobra.Command {
	var flags pageFlags
	c := a.action(&cobra.Command{Use: "list", Short: "List dead letters, the most recently failed first", Args: arguments(cobra.NoArgs)},
		func(ctx context.Context, db *database, _ []string) error {
			of, err := db.admin()
			if err != nil {
				return err
			}
			params, err := flags.params(a.Now())
			if err != nil {
				return err
			}
			page, err := of.Failed(ctx, params)
			if err != nil {
				return err
			}
			var letters []letter
			for _, m := range page.Messages {
				letters = append(letters, letter{newMessage(m)})
			}
			if err := list(a.render, "ID, TOPIC, UUID, FAILED, RETRIES, LAST ERROR", letters, flags.none("dead letter")); err != nil {
				return err
			}
			return a.more(page)
		})
	flags.add(c, "failed")
	return c
}

func (a *app) deadErrorsCommand() *cobra.Command {
	var flags filterFlags
	var limit int
	c := a.action(&cobra.Command{Use: "errors", Short: "Count dead letters by topic and error, the most frequent first", Args: arguments(cobra.NoArgs)},
		func(ctx context.Context, db *database, _ []string) error {
			of, err := db.admin()
			if err != nil {
				return err
			}
			filter, err := flags.read(a.Now())
			if err != nil {
				return err
			}
			bar := a.begin("Counting", -1)
			counts, err := of.Errors(ctx, admin.ErrorParams{Filter: filter, Limit: limit, Progress: func(r admin.Result) {
				if !a.render.json {
					bar.advance(r)
				}
			}})
			bar.end()
			if err != nil {
				return err
			}
			var groups []errorGroup
			for _, g := range counts.Groups {
				groups = append(groups, errorGroup{g.Topic, g.Error, g.Count, moment(g.First), moment(g.Last), g.Example.ID.String(), g})
			}
			if err := list(a.render, "COUNT, TOPIC, FIRST, LAST, ERROR", groups, flags.none("dead letter")); err != nil || counts.Others == 0 {
				return err
			}
			return a.render.say("\nOther errors have %s.", counted(counts.Others, "message", "messages"))
		})
	flags.add(c, "failed")
	limited(c, &limit, 20, "the most errors to list, 1 to 1,000")
	return c
}
