package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/admin"
)

func isSchema(err error) bool { return errors.Is(err, outbox.ErrSchema) }

// clockTolerance is by how much clocks may differ before people are misled by times.
const clockTolerance = 2 * time.Second

// notInstalled is how many tables are missing if it is not just one that was dropped.
const notInstalled = 5

// earlierLayout is what outbox.Check says of tables that cannot be migrated.
const earlierLayout = " is of an earlier layout"

// examineSchema explains what outbox.Check has found, and what up, the command that migrates, does about it.
func (d *doctor) examineSchema(err error, up string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, outbox.ErrSchemaNewer):
		d.find("newer", "a newer version of the library has migrated the database", "use the outbox command of that version")
		return nil
	case !isSchema(err):
		return err
	}
	found := problems(err)
	tables, nothing, earlier := 0, false, false
	for _, p := range found {
		earlier = earlier || strings.Contains(p.Problem, earlierLayout)
		nothing = nothing || strings.HasPrefix(p.Problem, "nothing is installed")
		if strings.HasPrefix(p.Problem, "table ") && strings.HasSuffix(p.Problem, " is missing") {
			tables++
		}
	}
	if !earlier && (nothing || tables >= notInstalled) {
		d.find("not-installed", "the tables are not there", "run "+up+", or check --dsn, --schema and --table")
		return nil
	}
	for _, p := range found {
		switch text := p.Problem; {
		case strings.Contains(text, earlierLayout):
			what, do, _ := strings.Cut(text, ": ")
			d.find("earlier-layout", what, do+"; see docs/upgrading.md")
		case strings.HasSuffix(text, " is missing"):
			d.mend(!earlier, "missing", text, "run "+up+", which creates it again")
		case strings.HasPrefix(text, "migration "), strings.Contains(text, "not those of this version"):
			d.mend(!earlier, "behind", text, "run "+up+", or use the outbox command of the version that the services have")
		default:
			d.find("setting", text, "change the setting of the database")
		}
	}
	return nil
}

// mend finds what migrating helps against, if the database can be migrated.
func (d *doctor) mend(can bool, code, what, do string) {
	if can {
		d.find(code, what, do)
	}
}

// durability has the doctor advise on what outbox.Check logs.
type durability struct {
	watermill.NopLogger
	doctor *doctor
}

func (l durability) Info(_ string, fields watermill.LogFields) {
	l.doctor.advice = append(l.doctor.advice, finding{"durability", fmt.Sprint(fields["because"]),
		"change it back, unless the last commits may be lost when the machine stops"})
}

func (d *doctor) examineHealth(ctx context.Context) error {
	asked := d.now()
	h, err := d.admin.Health(ctx)
	if err != nil {
		return err
	}
	answered := d.now()
	if ahead := h.Now.Sub(answered); ahead > clockTolerance {
		d.find("clock", fmt.Sprintf("the database's clock is %s ahead of this machine's", span(ahead)), "set both clocks by NTP; the outbox goes by the database's")
	} else if behind := asked.Sub(h.Now); behind > clockTolerance {
		d.find("clock", fmt.Sprintf("the database's clock is %s behind this machine's", span(behind)), "set both clocks by NTP; the outbox goes by the database's")
	}
	if late := h.Now.Sub(h.ExpiredSince); h.ExpiredLeases > 0 && late > d.patience {
		d.find("expired-leases", fmt.Sprintf("%s expired, the first %s ago, and nobody has given back what they held", counted(h.ExpiredLeases, "lease has", "leases have"), span(late)),
			"start a worker: any Subscriber gives them back; until then their messages wait")
	}
	if late := h.Now.Sub(h.UnloggedSince); h.Unlogged > 0 && late > d.patience {
		d.find("sequencer", fmt.Sprintf("%s of the log without a position, the first for %s", counted(h.Unlogged, "message", "messages"), span(late)),
			"run an outbox.Sequencer; until then no consumer group reads them. If one runs, look for its errors in the logs")
	}
	return nil
}

// examineTopics tells why what is due is not being handled.
func (d *doctor) examineTopics(ctx context.Context) error {
	topics, err := d.outbox.Topics(ctx)
	if err != nil {
		return err
	}
	leases, err := d.admin.Leases(ctx)
	if err != nil {
		return err
	}
	health, err := d.admin.Health(ctx)
	if err != nil {
		return err
	}
	handled, workers := map[string]bool{}, false
	for _, l := range leases {
		if l.Until.After(health.Now) {
			handled[l.Topic], workers = true, true
		}
	}
	var late []string
	for _, t := range topics {
		if t.Waiting == 0 || t.Age <= d.patience {
			continue
		}
		waits := fmt.Sprintf("%s of topic %q %s due, the first for %s", counted(t.Waiting, "message", "messages"), t.Topic, isAre(t.Waiting), span(t.Age))
		switch {
		case !t.PausedSince.IsZero():
			d.find("paused", waits+"; it is paused "+pausedBy(t.PausedSince, t.PausedBy, t.PauseReason), fmt.Sprintf("'outbox topic resume %s', once the reason is gone", t.Topic))
		case !workers:
			late = append(late, waits)
		case !handled[t.Topic]:
			d.find("unhandled", waits+", and no worker holds any of it", "start a process that subscribes to the topic, or correct its name where it is published")
		default:
			d.find("backlog", waits, "workers do not keep up: add some, raise MaxInFlight, or see what makes the handler slow")
		}
	}
	if len(late) > 0 {
		d.find("no-worker", "no worker holds a lease, while "+strings.Join(late, "; "), "start the workers; if they run, look for errors in their logs, and check that they use this database, schema and table")
	}
	return nil
}

// errorsExamined bounds how many dead letters are looked at for their errors.
const errorsExamined = 10_000

func (d *doctor) examineErrors(ctx context.Context) error {
	counts, err := d.admin.Errors(ctx, admin.ErrorParams{Limit: 3, Examine: errorsExamined})
	if err != nil || counts.Total == 0 {
		return err
	}
	var worst []string
	for _, g := range counts.Groups {
		worst = append(worst, fmt.Sprintf("%s of topic %q: %s", number(g.Count), g.Topic, short(g.Error)))
	}
	what := counted(counts.Total, "message has", "messages have")
	if counts.Examined >= errorsExamined {
		what = "at least " + what
	}
	d.find("dead-letters", fmt.Sprintf("%s failed for good: %s", what, strings.Join(worst, "; ")),
		"see 'outbox dead errors'; once the cause is fixed, 'outbox dead requeue', or else 'outbox dead discard'")
	return nil
}

func (d *doctor) examineStreams(ctx context.Context) error {
	blocked, err := d.outbox.BlockedStreams(ctx, outbox.ListParams{})
	if err != nil {
		return err
	}
	for i, s := range blocked {
		if i == 3 {
			d.find("blocked-stream", fmt.Sprintf("%s more blocked", counted(len(blocked)-i, "stream is", "streams are")), "see 'outbox stream list'")
			break
		}
		d.find("blocked-stream", fmt.Sprintf("stream %q of topic %q is blocked since %s, with %s behind: %s",
			s.StreamKey, s.Topic, clock(s.Since), counted(s.Waiting, "message", "messages"), short(s.LastError)),
			"fix the cause, then 'outbox stream resume', or give the message up with --skip")
	}
	return nil
}

func (d *doctor) examineGroups(ctx context.Context) error {
	groups, err := d.admin.LogGroups(ctx)
	if err != nil {
		return err
	}
	for _, g := range groups {
		name := fmt.Sprintf("consumer group %q", g.Group)
		if g.Topic != "" {
			name += fmt.Sprintf(" of topic %q", g.Topic)
		}
		switch {
		case g.Lag > d.patience && !g.Active:
			d.find("group-stopped", fmt.Sprintf("%s has no reader, and is %s behind", name, span(g.Lag)),
				"start its Subscriber or dispatcher; if it no longer exists, 'outbox log forget': until then the log keeps what it has not passed")
		case g.Lag > d.patience:
			d.find("group-behind", fmt.Sprintf("%s is %s behind, at %s", name, span(g.Lag), counted(g.Attempts, "attempt", "attempts")),
				"see its logs for the message that it is at, and for what makes it slow; 'outbox log skip' gives up a message that blocks it")
		}
		if g.Dead > 0 {
			d.find("group-dead", fmt.Sprintf("%s has given up %s", name, counted(g.Dead, "message", "messages")),
				"see 'outbox log dead list', then requeue or discard them")
		}
	}
	return nil
}
