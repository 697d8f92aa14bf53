package cli

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/spf13/cobra"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/admin"
)

// A finding is something that is wrong, and what to do about it.
type finding struct {
	Code string `json:"code"`
	What string `json:"what"`
	Do   string `json:"do"`
}

func (f finding) cells() []string { return []string{f.Code, f.What, f.Do} }

// A doctor looks at one outbox.
type doctor struct {
	db       *database
	patience time.Duration // how long what is normal may take
	now      func() time.Time

	outbox   *outbox.Outbox
	admin    *admin.Admin
	findings []finding
	advice   []finding // what may be deliberate, and is no trouble
}

func (d *doctor) find(code, what, do string) {
	d.findings = append(d.findings, finding{code, what, do})
}

func (a *app) doctorCommand() *cobra.Command {
	patience := age{time.Minute, "1m"}
	p := &parts{}
	c := a.action(&cobra.Command{Use: "doctor", Short: "Say what is wrong, and what to do about it",
		Long: `Say what is wrong, and what to do about it. It changes nothing, and looks at a bounded number of rows. The exit code is 1 if
something is wrong. A setting under which the last commits may be lost is told, but may be deliberate.`, Args: arguments(cobra.NoArgs)},
		func(ctx context.Context, db *database, _ []string) error {
			d := &doctor{db: db, patience: patience.duration, now: a.Now}
			if err := d.examine(ctx, p); err != nil {
				return err
			}
			if err := a.showFindings(append(d.findings, d.advice...)); err != nil {
				return err
			}
			if len(d.findings) > 0 {
				return errTrouble
			}
			if len(d.advice) > 0 {
				return a.render.say("Nothing is wrong; the advice above is yours to weigh.")
			}
			return a.render.say("All is well.")
		})
	p.add(c)
	c.Flags().Var(&patience, "patience", "how long messages may wait before that is trouble")
	return c
}

// showFindings writes a finding in two lines, because its sentences are too long for columns.
func (a *app) showFindings(findings []finding) error {
	if a.render.json {
		return list(a.render, "", findings, "")
	}
	for _, f := range findings {
		if err := a.render.say("%s: %s\n    %s", f.Code, escape(f.What, false), escape(f.Do, false)); err != nil {
			return err
		}
	}
	return nil
}

// examine looks at everything that can be looked at: without tables that is their absence alone.
func (d *doctor) examine(ctx context.Context, p *parts) (err error) {
	p.logger = durability{watermill.NopLogger{}, d}
	up := "'outbox migrate up'"
	if p.inbox {
		up = "'outbox migrate up --inbox'"
	}
	if err := d.examineSchema(p.check(ctx, d.db), up); err != nil {
		return err
	}
	if p.inbox {
		in, err := d.db.inbox()
		if err != nil {
			return err
		}
		d.outbox = in.Queue()
	} else if d.outbox, err = d.db.outbox(); err != nil {
		return err
	}
	if d.admin, err = admin.New(d.outbox); err != nil {
		return err
	}
	broken := len(d.findings) > 0
	for _, look := range []func(context.Context) error{d.examineHealth, d.examineTopics, d.examineErrors, d.examineStreams, d.examineGroups} {
		err := look(ctx)
		if broken && isSchema(err) { // that is said already
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}
