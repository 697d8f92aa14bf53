package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/admin"
)

// An act is what is done to many messages: to dead letters, or to ready ones.
type act struct {
	app        *app
	verb, past string
	do         func(*admin.Admin, context.Context, admin.ActParams) (admin.Result, error)
	final      bool // it cannot be undone
	ready      bool // it is for ready messages
	flags      filterFlags
	all        bool
	on         func(*database) (*outbox.Outbox, error) // defaults to the outbox
	under      string                                  // the command above it, for examples
}

func (t *act) command(use, short string) *cobra.Command {
	name, _, _ := strings.Cut(use, " ")
	long := `.

It works in batches and can be interrupted at any time: what is done stays done. It says how to continue. Dead letters that
fail again while it runs are left alone.`
	verb := "failed"
	if t.ready {
		verb = "were published"
		long = `.

It works in batches and can be interrupted at any time: what is done stays done, and the same command goes on. Messages that a
worker has are left alone.`
	}
	c := t.app.action(&cobra.Command{Use: use, Short: short, Annotations: map[string]string{dryRuns: "yes"}, Long: short + long,
		Example: fmt.Sprintf(`  outbox %[1]s %[2]s --error "no such customer" --dry-run
  outbox %[1]s %[2]s --topic orders --since 2h --yes
  outbox %[1]s %[2]s 0198f0c4-5a0b-7000-8000-000000000000`, t.under, name)},
		func(ctx context.Context, db *database, args []string) error { return t.run(ctx, db, args) })
	t.flags.add(c, verb)
	c.Flags().BoolVar(&t.all, "all", false, "all "+t.one()+"s")
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
	params.All, params.DryRun, params.By = t.all, t.app.dryRun, t.app.actor()
	for _, arg := range args {
		var id outbox.MessageID
		if err := id.UnmarshalText([]byte(arg)); err != nil {
			return params, usage("%q is no message id: lists have them in their first column", arg)
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
	open := (*database).outbox
	if t.on != nil {
		open = t.on
	}
	o, err := open(db)
	if err != nil {
		return err
	}
	of, err := admin.New(o)
	if err != nil {
		return err
	}
	strangers, err := t.strangers(ctx, o, params.IDs)
	if err != nil {
		return err
	}
	if len(strangers) > 0 && len(strangers) == len(params.IDs) {
		return &notThereError{0, len(strangers), strangers}
	}
	total := -1
	if asks := t.final || len(args) == 0; asks && !a.yes && !a.dryRun {
		count := params
		count.DryRun = true
		counted, err := t.do(of, ctx, count)
		if err != nil {
			return err
		}
		if counted.Matched == 0 {
			return a.render.result(newBatch(counted, true), t.flags.none(t.one()))
		}
		if err := a.confirm(ctx, "%s %s?", t.verb, t.among(counted)); err != nil {
			return err
		}
		total = counted.Matched
		params.Until = counted.Until
	}
	bar := a.begin(t.verb, total)
	told := a.render.json || a.dryRun || len(args) > 0
	params.Progress = func(r admin.Result) {
		if !told && !t.ready && r.Done > 0 && r.Examined >= fullBatch {
			told = true
			fmt.Fprintf(a.Err, "If this is killed, continue with --until %s\n", moment(r.Until))
		}
		bar.advance(r)
	}
	result, err := t.do(of, ctx, params)
	bar.end()
	if err := t.report(result, err); err != nil || len(strangers) == 0 {
		return err
	}
	return &notThereError{result.Matched, len(params.IDs), strangers}
}

// fullBatch is how many messages are looked at before there may be more.
const fullBatch = 1000

func (t *act) one() string {
	if t.ready {
		return "ready message"
	}
	return "dead letter"
}

func (t *act) letters(n int) string { return counted(n, t.one(), t.one()+"s") }

// among is how many match, and of how many. Those that are looked at for ready messages are in all states.
func (t *act) among(r admin.Result) string {
	if t.ready {
		return fmt.Sprintf("%s (of %s looked at)", t.letters(r.Matched), number(r.Examined))
	}
	return fmt.Sprintf("%s of %s", t.letters(r.Matched), number(r.Examined))
}

func (t *act) report(result admin.Result, err error) error {
	a := t.app
	if err != nil {
		switch {
		case !result.Until.IsZero():
			fmt.Fprintf(a.Err, "Stopped after %s were %s. To continue: the same command with --until %s\n", t.letters(result.Done), t.past, moment(result.Until))
		case result.Done > 0:
			fmt.Fprintf(a.Err, "Stopped after %s were %s. To continue: the same command\n", t.letters(result.Done), t.past)
		}
		return err
	}
	text := t.letters(result.Done) + " " + t.past + "."
	switch {
	case a.dryRun:
		text = fmt.Sprintf("%s would be %s.", t.among(result), t.past)
	case result.Done < result.Matched && t.final:
		text += fmt.Sprintf(" %s stayed: pending joins, the log or blocked streams need them, or others have locked them.", t.letters(result.Matched-result.Done))
	case result.Done < result.Matched:
		text += fmt.Sprintf(" %s stayed: others have locked them, or were faster.", t.letters(result.Matched-result.Done))
	}
	return a.render.result(newBatch(result, true), text)
}
