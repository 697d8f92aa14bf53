package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	outbox "github.com/incursa/watermill-outbox"
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
	requeue := &act{app: a, verb: "Requeue", past: "requeued", do: (*admin.Admin).Requeue}
	discard := &act{app: a, verb: "Discard", past: "discarded", do: (*admin.Admin).Discard, final: true}
	return group("dead", "Dead letters: messages that have failed for good", a.deadListCommand(), a.deadErrorsCommand(), a.showCommand(),
		requeue.command("requeue [ID...]", "Make dead letters ready again, by ids or by a filter"),
		discard.command("discard [ID...]", "Delete dead letters, by ids or by a filter"))
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
			if err := list(a.render, "ID, TOPIC, UUID, FAILED, RETRIES, LAST ERROR", letters, "There is no such dead letter."); err != nil {
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
			if err := list(a.render, "COUNT, TOPIC, FIRST, LAST, ERROR", groups, "There is no such dead letter."); err != nil || counts.Others == 0 {
				return err
			}
			return a.render.say("\nOther errors have %s.", counted(counts.Others, "message", "messages"))
		})
	flags.add(c, "failed")
	c.Flags().IntVarP(&limit, "limit", "n", 20, "the most errors to list, 1 to 1,000")
	return c
}

// An act is what is done to many dead letters.
type act struct {
	app        *app
	verb, past string
	do         func(*admin.Admin, context.Context, admin.ActParams) (admin.Result, error)
	final      bool // it cannot be undone
	flags      filterFlags
	all        bool
	on         func(*database) (*admin.Admin, error) // defaults to the outbox
}

func (t *act) command(use, short string) *cobra.Command {
	name, _, _ := strings.Cut(use, " ")
	c := t.app.action(&cobra.Command{Use: use, Short: short, Annotations: map[string]string{dryRuns: "yes"},
		Long: short + `.

It works in batches and can be interrupted at any time: what is done stays done. It says how to continue. Dead letters that
fail again while it runs are left alone.`,
		Example: fmt.Sprintf(`  outbox dead %[1]s --error "no such customer" --dry-run
  outbox dead %[1]s --topic orders --since 2h --yes
  outbox dead %[1]s 0198f0c4-5a0b-7000-8000-000000000000`, name)},
		func(ctx context.Context, db *database, args []string) error { return t.run(ctx, db, args) })
	t.flags.add(c, "failed")
	c.Flags().BoolVar(&t.all, "all", false, "all dead letters")
	return c
}

func (t *act) params(args []string) (params admin.ActParams, err error) {
	chosen := t.flags.chosen()
	switch {
	case len(args) > 0 && (chosen || t.all), chosen && t.all:
		return params, usage("give ids, or a filter, or --all: not several of them")
	case len(args) == 0 && !chosen && !t.all && t.flags.until == "":
		return params, usage("say which: ids, a filter such as --topic or --error, or --all")
	}
	if params.Filter, err = t.flags.read(t.app.Now()); err != nil {
		return params, err
	}
	params.All, params.DryRun = t.all, t.app.dryRun
	for _, arg := range args {
		var id outbox.MessageID
		if err := id.UnmarshalText([]byte(arg)); err != nil {
			return params, usage("%q is no message id: 'outbox dead list' has them in its first column", arg)
		}
		params.IDs = append(params.IDs, id)
	}
	return params, nil
}

func (t *act) run(ctx context.Context, db *database, args []string) error {
	a := t.app
	params, err := t.params(args)
	if err != nil {
		return err
	}
	open := (*database).admin
	if t.on != nil {
		open = t.on
	}
	of, err := open(db)
	if err != nil {
		return err
	}
	total := -1
	if asks := t.final || len(args) == 0; asks && !a.yes && !a.dryRun {
		count := params
		count.DryRun = true
		counted, err := of.Requeue(ctx, count)
		if err != nil {
			return err
		}
		if counted.Matched == 0 {
			return a.render.result(newBatch(counted, true), "There is no such dead letter.")
		}
		if err := a.confirm("%s %s of %s?", t.verb, letters(counted.Matched), number(counted.Examined)); err != nil {
			return err
		}
		total = counted.Matched
		params.Until = counted.Until
	}
	bar := a.begin(t.verb, total)
	told := a.render.json || a.dryRun || len(args) > 0
	params.Progress = func(r admin.Result) {
		if !told && r.Done > 0 && r.Examined >= fullBatch {
			told = true
			fmt.Fprintf(a.Err, "If this is killed, continue with --until %s\n", moment(r.Until))
		}
		bar.advance(r)
	}
	result, err := t.do(of, ctx, params)
	bar.end()
	return t.report(result, err)
}

// fullBatch is how many dead letters are looked at before there may be more.
const fullBatch = 1000

func letters(n int) string { return counted(n, "dead letter", "dead letters") }

func (t *act) report(result admin.Result, err error) error {
	a := t.app
	if err != nil {
		if !result.Until.IsZero() {
			fmt.Fprintf(a.Err, "Stopped after %s were %s. To continue: the same command with --until %s\n", letters(result.Done), t.past, moment(result.Until))
		}
		return err
	}
	text := letters(result.Done) + " " + t.past + "."
	switch {
	case a.dryRun:
		text = fmt.Sprintf("%s of %s would be %s.", letters(result.Matched), number(result.Examined), t.past)
	case result.Done < result.Matched && t.final:
		text += fmt.Sprintf(" %s stayed: pending joins, the log or blocked streams need them, or others have locked them.", letters(result.Matched-result.Done))
	case result.Done < result.Matched:
		text += fmt.Sprintf(" %s stayed: others have locked them, or were faster.", letters(result.Matched-result.Done))
	}
	return a.render.result(newBatch(result, true), text)
}
